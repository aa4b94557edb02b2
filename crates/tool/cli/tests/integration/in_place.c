/* What a program may do to private memory, done to memory that superpage put into files: each call must do what it does to
 * private anonymous memory. Between the calls the design has time to make superpages. Prints `ok`, or what is wrong. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, EXTENT = 2 << 20, EXTENTS = 8 };

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            printf("line %d: %s (%s)\n", __LINE__, #condition, strerror(errno));                                       \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static char *map(long length)
{
    char *memory = mmap(0, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    return memory;
}

static void fill(char *memory, long length, int with)
{
    for (long at = 0; at < length; at += PAGE)
        memset(memory + at, with + at / PAGE % 50, PAGE);
    usleep(100000);
}

static int is_filled(const char *memory, long from, long to, int with)
{
    for (long at = from; at < to; at += PAGE)
        if (memory[at] != (char)(with + at / PAGE % 50) || memory[at + PAGE - 1] != memory[at])
            return 0;
    return 1;
}

static int is_zero(const char *memory, long from, long to)
{
    for (long at = from; at < to; at++)
        if (memory[at])
            return 0;
    return 1;
}

static void discarding(void)
{
    long length = EXTENTS * EXTENT, page = 3L * EXTENT + 5 * PAGE;
    char *memory = map(length);
    for (int turn = 0; turn < 2; turn++) {
        fill(memory, length, 1);
        CHECK(!madvise(memory + page, PAGE, MADV_DONTNEED));
        CHECK(!madvise(memory + 5 * EXTENT, EXTENT, MADV_DONTNEED));
        CHECK(is_zero(memory, page, page + PAGE) && is_zero(memory, 5 * EXTENT, 6 * EXTENT));
        CHECK(is_filled(memory, 0, page, 1) && is_filled(memory, page + PAGE, 5 * EXTENT, 1));
        CHECK(is_filled(memory, 6 * EXTENT, length, 1));
        memset(memory + page, 7, PAGE);
        CHECK(!madvise(memory + EXTENT, 2 * EXTENT, MADV_FREE));
        memset(memory + EXTENT, 9, PAGE);
        CHECK(memory[page] == 7 && memory[EXTENT] == 9 && is_filled(memory, 0, EXTENT, 1));
    }
    CHECK(!munmap(memory, length));
}

static void moving(void)
{
    long length = EXTENTS * EXTENT;
    char *memory = map(length);
    fill(memory, length, 2);
    memory = mremap(memory, length, 2 * length, MREMAP_MAYMOVE);
    CHECK(memory != MAP_FAILED && is_filled(memory, 0, length, 2) && is_zero(memory, length, 2 * length));
    char *other = map(length);
    fill(other, length, 3);
    CHECK(mremap(other, EXTENT, EXTENT, MREMAP_MAYMOVE | MREMAP_FIXED, memory + 3 * EXTENT) == memory + 3 * EXTENT);
    CHECK(is_filled(memory, 0, 3 * EXTENT, 2) && is_filled(memory + 3 * EXTENT, 0, EXTENT, 3));
    CHECK(is_filled(other, EXTENT, length, 3));
    other = mremap(other + EXTENT, length - EXTENT, 2 * EXTENT + PAGE, 0);
    CHECK(other != MAP_FAILED && is_filled(other - EXTENT, EXTENT, 3 * EXTENT + PAGE, 3));
}

static void taking_apart(void)
{
    long length = EXTENTS * EXTENT;
    char *memory = map(length);
    fill(memory, length, 4);
    CHECK(!munmap(memory + EXTENT + PAGE, EXTENT));
    CHECK(!munmap(memory + 4 * EXTENT, EXTENT));
    CHECK(is_filled(memory, 0, EXTENT + PAGE, 4) && is_filled(memory, 2 * EXTENT + PAGE, 4 * EXTENT, 4));
    char *fixed = mmap(memory + 6 * EXTENT, EXTENT, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    CHECK(fixed == memory + 6 * EXTENT && is_zero(fixed, 0, EXTENT) && is_filled(memory, 7 * EXTENT, length, 4));
    CHECK(!mprotect(memory + 5 * EXTENT + 9 * PAGE, PAGE, PROT_NONE));
    CHECK(!mprotect(memory + 5 * EXTENT + 9 * PAGE, PAGE, PROT_READ | PROT_WRITE));
    CHECK(is_filled(memory, 5 * EXTENT, 6 * EXTENT, 4));
    CHECK(!mlock(memory + 3 * EXTENT, PAGE) && !munlock(memory + 3 * EXTENT, PAGE));
    CHECK(is_filled(memory, 3 * EXTENT, 4 * EXTENT, 4));
}

static volatile long *counters;
static volatile int is_ended;

/* The second counter is never ahead of the first, and at most one behind it. */
static void *count(void *unused)
{
    while (!is_ended) {
        counters[0]++;
        counters[EXTENT / sizeof(long)]++;
    }
    return unused;
}

static void forking(void)
{
    long length = EXTENTS * EXTENT;
    pthread_t thread;
    for (int turn = 0; turn < 5; turn++) {
        char *memory = map(length), *busy = map(2 * EXTENT);
        fill(memory, length, 5);
        counters = (long *)busy;
        is_ended = 0;
        CHECK(!pthread_create(&thread, 0, count, 0));
        while (counters[0] < 1000)
            ;
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            long first = counters[0], second = counters[EXTENT / sizeof(long)];
            int is_bad = first - second < 0 || first - second > 1 || !is_filled(memory, 0, length, 5);
            usleep(20000);
            is_bad |= counters[0] != first;
            memset(memory, 99, length);
            _exit(is_bad);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
        CHECK(is_filled(memory, 0, length, 5));
        is_ended = 1;
        CHECK(!pthread_join(thread, 0) && counters[0] == counters[EXTENT / sizeof(long)]);
        CHECK(!munmap(memory, length) && !munmap(busy, 2 * EXTENT));
    }
    /* A child that no library sees being made must not write into its parent's memory. */
    char *memory = map(length);
    fill(memory, length, 6);
    long child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    CHECK(child >= 0);
    if (child == 0) {
        memset(memory, 98, length);
        _exit(0);
    }
    CHECK(waitpid(child, 0, 0) == child && is_filled(memory, 0, length, 6));
}

/* A thread allocates, discards and unmaps while another forks. What it has handed out is in each child. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *handed_out;
enum { OBJECT = 12 << 20 };

static void *churn(void *unused)
{
    while (!is_ended) {
        char *object = malloc(OBJECT), *memory = map(2 * EXTENT);
        object[0] = object[OBJECT / 2] = object[OBJECT - 1] = 13;
        if (!pthread_mutex_trylock(&lock)) {
            char *before = handed_out;
            handed_out = object;
            pthread_mutex_unlock(&lock);
            object = before;
        }
        free(object);
        memory[0] = memory[EXTENT] = 14;
        CHECK(!madvise(memory, 2 * EXTENT, MADV_DONTNEED));
        CHECK(memory[0] == 0 && memory[EXTENT] == 0);
        CHECK(!munmap(memory, 2 * EXTENT));
    }
    return unused;
}

static void forking_amid(void)
{
    pthread_t threads[2];
    is_ended = 0;
    for (int at = 0; at < 2; at++)
        CHECK(!pthread_create(&threads[at], 0, churn, 0));
    for (int turn = 0; turn < 60; turn++) {
        pthread_mutex_lock(&lock);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            char *it = handed_out;
            _exit(it && (it[0] != 13 || it[OBJECT / 2] != 13 || it[OBJECT - 1] != 13));
        }
        pthread_mutex_unlock(&lock);
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    is_ended = 1;
    for (int at = 0; at < 2; at++)
        CHECK(!pthread_join(threads[at], 0));
    free(handed_out);
}

static void allocating(void)
{
    char *memory = malloc(9 << 20);
    memset(memory, 11, 9 << 20);
    for (long size = 10 << 20; size < 40 << 20; size += 5 << 20) {
        memory = realloc(memory, size);
        CHECK(memory && memory[0] == 11 && memory[(9 << 20) - 1] == 11);
        memset(memory + size - PAGE, 12, PAGE);
    }
    memory = realloc(memory, 3 << 20);
    CHECK(memory && memory[0] == 11 && memory[(3 << 20) - 1] == 11);
    free(memory);
    memory = calloc(1, 16 << 20);
    CHECK(is_zero(memory, 0, 16 << 20));
    free(memory);
}

int main(void)
{
    discarding();
    moving();
    taking_apart();
    allocating();
    forking();
    forking_amid();
    printf("ok\n");
    return 0;
}
