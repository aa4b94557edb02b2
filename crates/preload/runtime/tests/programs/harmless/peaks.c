/* Programs whose memory is looked at: each prints nothing but what it is asked for. */
#include "common.h"
#include <sys/resource.h>

/* Grows by 1 MiB at a time: on base pages the memory moves by page tables and is there once. */
static int grows_by_realloc(void)
{
    char *memory = 0;
    for (size_t size = MIB; size <= 256 * MIB; size += MIB) {
        memory = realloc(memory, size);
        memset(memory + size - MIB, size >> 20, MIB);
    }
    for (size_t size = MIB; size <= 256 * MIB; size += MIB)
        if (memory[size - 1] != (char)(size >> 20))
            return 1;
    return 0;
}

/* One page in sixteen of 200 MiB in pieces of 1 MiB is used, and 70 MiB are full. */
static int sparse(void)
{
    memset(map(70 * MIB), 1, 70 * MIB);
    for (int i = 0; i < 200; i++) {
        char *piece = malloc(MIB);
        for (size_t at = 0; at < MIB; at += 64 * 1024)
            piece[at] = 1;
    }
    return 0;
}

/* The same of malloc's pieces alone: 12.5 MiB are used. */
static int sparse_and_small(void)
{
    for (int i = 0; i < 200; i++) {
        char *piece = malloc(MIB);
        for (size_t at = 0; at < MIB; at += 64 * 1024)
            piece[at] = 1;
    }
    return 0;
}

/* 16 MiB are allocated for one byte, and freed. */
static int one_byte_of_many(void)
{
    struct rusage usage;
    for (int i = 0; i < 300; i++) {
        char *volatile memory = malloc(16 * MIB);
        memory[i] = 1;
        free(memory);
    }
    getrusage(RUSAGE_SELF, &usage);
    printf("faults %ld\n", usage.ru_minflt);
    return 0;
}

static int small_heap(void)
{
    for (int i = 0; i < 200000; i++)
        memset(malloc(100), 1, 100);
    return 0;
}

/* Whether this memory is on superpages at all: what all other cases presume. */
static int on_superpages(void)
{
    char *mapped = memset(map(64 * MIB), 1, 64 * MIB);
    char *shared = memset(map_shared(64 * MIB), 1, 64 * MIB);
    printf("mapped %ld shared %ld\n", superpage_kib(mapped + 32 * MIB),
           superpage_kib(shared + 32 * MIB));
    return 0;
}

/* Stays as it is until its input ends, for whoever looks at it from outside. */
static int waits(void)
{
    memset(malloc(16 * MIB), 1, 16 * MIB);
    char *small = strdup("memory of the heap");
    printf("%s\n", *small ? "ready" : "");
    return getchar() == EOF;
}

/* The same with next to nothing in use. */
static int waits_small(void)
{
    memset(malloc(300 * 1024), 1, 300 * 1024);
    printf("ready\n");
    return getchar() == EOF;
}

MAIN(CASE(grows_by_realloc), CASE(sparse), CASE(sparse_and_small), CASE(one_byte_of_many),
     CASE(small_heap), CASE(on_superpages), CASE(waits), CASE(waits_small))
