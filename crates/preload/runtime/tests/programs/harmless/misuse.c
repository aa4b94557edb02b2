/* Memory that is freed wrongly. On base pages glibc notices, says what and aborts. */
#include "common.h"

/* By pointers that the compiler cannot follow. */
static void (*volatile release)(void *) = free;
static void *(*volatile allocate)(size_t) = malloc;
static void *(*volatile resize)(void *, size_t) = realloc;

static int free_twice(size_t size)
{
    void *memory = allocate(size), *behind = allocate(size);
    release(memory);
    release(memory);
    printf("unnoticed\n");
    return behind == 0;
}

static int small_twice(void)
{
    return free_twice(100);
}

static int medium_twice(void)
{
    return free_twice(5000);
}

/* Its memory is unmapped by the first free. */
static int large_twice(void)
{
    return free_twice(40 * MIB);
}

static int of_the_stack(void)
{
    char local[64] __attribute__((aligned(16))) = {0};
    release(allocate(10));
    release(local + 16);
    printf("unnoticed\n");
    return 0;
}

static int of_the_middle(void)
{
    char *memory = memset(allocate(1000), 0, 1000);
    release(memory + 32);
    printf("unnoticed\n");
    return 0;
}

static int of_the_middle_of_large_memory(void)
{
    char *memory = memset(allocate(40 * MIB), 0, 40 * MIB);
    release(memory + SUPERPAGE);
    printf("unnoticed\n");
    return 0;
}

static int resized_after_free(void)
{
    void *memory = allocate(5000), *behind = allocate(100);
    release(memory);
    resize((char *)memory + 8, 100);
    printf("unnoticed\n");
    return behind == 0;
}

static int overrun(void)
{
    char *memory = allocate(2000), *behind = allocate(2000);
    memset(memory, 0xff, 2040);
    release(behind);
    release(memory);
    printf("unnoticed\n");
    return 0;
}

MAIN(CASE(small_twice), CASE(medium_twice), CASE(large_twice), CASE(of_the_stack),
     CASE(of_the_middle), CASE(of_the_middle_of_large_memory), CASE(resized_after_free),
     CASE(overrun))
