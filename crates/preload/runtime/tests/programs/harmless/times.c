/* What takes time, for scripts/harmless-times: each case prints its milliseconds. */
#include "common.h"
#include <pthread.h>
#include <sched.h>
#include <time.h>

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e3 + time.tv_nsec / 1e6;
}

static void map_and_unmap(void)
{
    char *start = map(6 * MIB);
    start[0] = 1;
    munmap(start + PAGE, PAGE);
    munmap(start, 6 * MIB);
}

static void *map_and_allocate(void *unused)
{
    for (;;) {
        map_and_unmap();
        free(memset(malloc(300000), 1, 300000));
    }
    return unused;
}

/* The worst of 300 rounds of a realtime thread that shares its CPU with two of its process. */
static int realtime_worst(void)
{
    struct sched_param priority = {10};
    pthread_t thread;
    cpu_set_t first;
    double worst = 0;
    CPU_ZERO(&first);
    CPU_SET(0, &first);
    sched_setaffinity(0, sizeof first, &first);
    for (int i = 0; i < 2; i++)
        pthread_create(&thread, 0, map_and_allocate, 0);
    usleep(100000);
    if (sched_setscheduler(0, SCHED_FIFO, &priority))
        _exit(SKIPPED);
    double begun = now();
    for (int i = 0; i < 300 && now() - begun < 8000; i++) {
        double from = now();
        map_and_unmap();
        if (now() - from > worst)
            worst = now() - from;
        usleep(1000);
    }
    dprintf(1, "%.3f\n", worst);
    _exit(0);
}

static int growing_by_realloc(void)
{
    double begun = now();
    char *memory = 0;
    for (size_t size = MIB; size <= 512 * MIB; size += MIB) {
        memory = realloc(memory, size);
        memset(memory + size - MIB, 1, MIB);
    }
    printf("%.3f\n", now() - begun);
    return 0;
}

static int one_byte_of_many(void)
{
    double begun = now();
    for (int i = 0; i < 1000; i++) {
        char *volatile memory = malloc(16 * MIB);
        memory[i] = 1;
        free(memory);
    }
    printf("%.3f\n", now() - begun);
    return 0;
}

/* Threads that allocate more and more small memory, as LTP's mallocstress does. */
static void *allocate_chain(void *unused)
{
    static const int sizes = 2000;
    for (int round = 0; round < 10; round++) {
        void **chain = 0, **next;
        for (int i = 1; i < sizes; i++) {
            next = malloc(i * 16);
            *next = chain, chain = next;
        }
        for (; chain; chain = next)
            next = *chain, free(chain);
    }
    return unused;
}

static int many_threads_allocate(void)
{
    pthread_t threads[40];
    double begun = now();
    for (int i = 0; i < 40; i++)
        pthread_create(threads + i, 0, allocate_chain, 0);
    for (int i = 0; i < 40; i++)
        pthread_join(threads[i], 0);
    printf("%.3f\n", now() - begun);
    return 0;
}

static void *map_once(void *unused)
{
    map_and_unmap();
    return unused;
}

static int many_threads(void)
{
    static pthread_t threads[1000];
    double begun = now();
    for (int i = 0; i < 1000; i++)
        pthread_create(threads + i, 0, map_once, 0);
    for (int i = 0; i < 1000; i++)
        pthread_join(threads[i], 0);
    printf("%.3f\n", now() - begun);
    return 0;
}

static int mapping_in_turns(void)
{
    double begun = now();
    for (int i = 0; i < 20000; i++)
        map_and_unmap();
    printf("%.3f\n", now() - begun);
    return 0;
}

static int forks(void)
{
    memset(malloc(200 * MIB), 1, 200 * MIB);
    double begun = now();
    for (int i = 0; i < 20; i++) {
        pid_t child = fork();
        if (!child)
            _exit(0);
        waitpid(child, 0, 0);
    }
    printf("%.3f\n", now() - begun);
    return 0;
}

MAIN(CASE(realtime_worst), CASE(growing_by_realloc), CASE(one_byte_of_many),
     CASE(many_threads_allocate), CASE(many_threads), CASE(mapping_in_turns), CASE(forks))
