/* Memory use in a control group of 128 MB. Programs that fit on base pages are not killed. */
#include "common.h"

static int small_objects(void)
{
    static char *objects[70000];
    uint64_t state = 88172645463325252ull;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 70000; i++) {
            state ^= state << 13, state ^= state >> 7, state ^= state << 17;
            size_t size = 200 + (unsigned)state % 1800;
            objects[i] = memset(malloc(size), 1, size);
        }
        for (int i = 0; i < 70000; i++)
            if (i % 16)
                free(objects[i]);
    }
    printf("survived\n");
    return 0;
}

static int one_large_object(void)
{
    memset(malloc(100 * MIB), 1, 100 * MIB);
    printf("survived\n");
    return 0;
}

/* What is kept for the next such mapping gives way to another. */
static int mapped_and_unmapped(void)
{
    for (int i = 0; i < 20; i++) {
        char *start = memset(map(40 * MIB), 1, 40 * MIB);
        munmap(start, 40 * MIB);
        usleep(2000);
    }
    memset(map(110 * MIB), 1, 110 * MIB);
    printf("survived\n");
    return 0;
}

static int written_by_a_child(void)
{
    char *memory = memset(malloc(45 * MIB), 1, 45 * MIB);
    pid_t child = fork();
    if (!child) {
        memset(memory, 2, 45 * MIB);
        _exit(0);
    }
    return !ended_well("child", child);
}

static int growing_object(void)
{
    char *memory = 0;
    for (size_t size = MIB; size <= 60 * MIB; size += MIB) {
        memory = realloc(memory, size);
        memset(memory + size - MIB, 1, MIB);
    }
    printf("survived\n");
    return 0;
}

MAIN(CASE(small_objects), CASE(one_large_object), CASE(mapped_and_unmapped),
     CASE(written_by_a_child), CASE(growing_object))
