/* Deep recursion and many threads on stacks of a fixed size; checks itself, and prints how much of
 * each stack lies on superpages, in KiB. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <threads.h>
#include <unistd.h>

#define MIB (1l << 20)
#define CHECK(what) do { if (!(what)) { printf("wrong: line %d: %s\n", __LINE__, #what); fflush(stdout); _exit(1); } } while (0)

/* Of the mappings at [from, to), the KiB on superpages. */
static long huge(const void *from, const void *to)
{
    static const char *fields[] = {"AnonHugePages", "Private_Hugetlb"};
    static char buffer[1 << 20];
    char *line, *rest = buffer, name[64];
    unsigned long start, end, kib, used = 0, got, sum = 0;
    int inside = 0, fd = open("/proc/self/smaps", O_RDONLY);
    while ((got = read(fd, buffer + used, sizeof buffer - 1 - used)) > 0 && got < sizeof buffer)
        used += got;
    close(fd);
    buffer[used] = 0;
    while ((line = strsep(&rest, "\n")))
        if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
            inside = start < (unsigned long)to && end > (unsigned long)from;
        else if (inside && sscanf(line, "%63[^:]: %lu", name, &kib) == 2)
            for (int i = 0; i < 2; i++)
                if (!strcmp(name, fields[i]))
                    sum += kib;
    return sum;
}

/* Uses `deep` bytes of stack, and calls `last` at the bottom of it. */
static __attribute__((noinline)) long descend(long deep, void (*last)(void))
{
    volatile char frame[1000];
    frame[0] = frame[999] = deep % 100;
    if (deep > 1100) {
        long below = descend(deep - 1100, last);
        CHECK(frame[0] == deep % 100 && frame[999] == deep % 100);
        return below + 1;
    }
    last();
    return 1;
}
static void nothing(void) {}

static void forks(void)
{
    volatile int local = 5;
    pid_t child = fork();
    if (child == 0) {
        CHECK(local == 5);
        local = 6;
        descend(500 << 10, nothing);
        pthread_t thread;
        extern void *deep_thread(void *);
        CHECK(!pthread_create(&thread, 0, deep_thread, 0) && !pthread_join(thread, 0));
        _exit(local);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 6 << 8);
    CHECK(local == 5);
}

static void attributes(long *size, char **start)
{
    pthread_attr_t attr;
    size_t bytes;
    void *low;
    CHECK(!pthread_getattr_np(pthread_self(), &attr));
    CHECK(!pthread_attr_getstack(&attr, &low, &bytes));
    pthread_attr_destroy(&attr);
    CHECK((char *)&low > (char *)low && (char *)&low < (char *)low + bytes);
    *size = bytes;
    *start = low;
}

static __thread int of_thread = 7;
static long thread_size, thread_huge;
void *deep_thread(void *argument)
{
    long size;
    char *start;
    CHECK(of_thread == 7);
    of_thread = 8;
    attributes(&size, &start);
    long left = (char *)&size - start - (64 << 10);
    descend(left < 3 * MIB ? left : 3 * MIB, argument ? forks : nothing);
    thread_size = size;
    thread_huge = huge(start, start + size);
    /* What a JVM does to its stacks. */
    if (argument) {
        CHECK(!mprotect(start, 8192, PROT_NONE));
        descend(left - (64 << 10), nothing);
        CHECK(!mprotect(start, 8192, PROT_READ | PROT_WRITE));
    }
    return (void *)42;
}

static void *brief(void *argument)
{
    CHECK(of_thread == 7);
    of_thread++;
    descend(100 << 10, nothing);
    return argument;
}
static void *leaves(void *argument)
{
    pthread_exit(argument);
}
static void cleaned(void *argument)
{
    ++*(int *)argument;
}
static void *waits(void *argument)
{
    pthread_cleanup_push(cleaned, argument);
    for (;;)
        pause();
    pthread_cleanup_pop(0);
}
static int c11(void *argument)
{
    return *(int *)argument - 100;
}
static int ended;
static void *detached(void *argument)
{
    brief(0);
    __atomic_add_fetch(&ended, 1, __ATOMIC_SEQ_CST);
    return 0;
}

static void threads(int many)
{
    pthread_t thread;
    pthread_attr_t attr;
    void *result;
    int cleanups = 0, code, start = 93;
    thrd_t c11_thread;
    CHECK(!pthread_create(&thread, 0, deep_thread, (void *)1));
    CHECK(!pthread_join(thread, &result) && result == (void *)42);
    CHECK(!pthread_create(&thread, 0, leaves, &start) && !pthread_join(thread, &result));
    CHECK(result == &start);
    CHECK(!pthread_create(&thread, 0, waits, &cleanups) && !pthread_cancel(thread));
    CHECK(!pthread_join(thread, &result) && result == PTHREAD_CANCELED && cleanups <= 1);
    CHECK(thrd_create(&c11_thread, c11, &start) == thrd_success);
    CHECK(thrd_join(c11_thread, &code) == thrd_success && code == -7);

    /* The caller's attributes are its own; a stack of its own is used. */
    char *own = malloc(MIB);
    pthread_attr_init(&attr);
    CHECK(!pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED));
    pthread_attr_t before = attr;
    CHECK(!pthread_create(&thread, &attr, detached, 0));
    CHECK(!memcmp(&before, &attr, sizeof attr));
    CHECK(!pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_JOINABLE));
    CHECK(!pthread_attr_setstacksize(&attr, 9 * MIB));
    CHECK(!pthread_create(&thread, &attr, deep_thread, 0) && !pthread_join(thread, 0));
    CHECK(thread_size >= 9 * MIB);
    CHECK(!pthread_attr_setstack(&attr, own, MIB));
    CHECK(!pthread_create(&thread, &attr, deep_thread, 0) && !pthread_join(thread, 0));
    CHECK(thread_size == MIB);
    free(own);

    /* Thousands, joined and detached, some at once. */
    pthread_t row[20];
    int made = 1;
    for (int round = 0; round < many / 40; round++) {
        for (int i = 0; i < 20; i++)
            CHECK(!pthread_create(&row[i], 0, brief, &row[i]));
        for (int i = 0; i < 20; i++)
            CHECK(!pthread_join(row[i], &result) && result == &row[i]);
        for (int i = 0; i < 20; i++, made++) {
            CHECK(!pthread_create(&thread, 0, detached, 0));
            CHECK(!pthread_detach(thread));
        }
        while (__atomic_load_n(&ended, __ATOMIC_SEQ_CST) + 10 < made)
            sched_yield();
    }
    while (__atomic_load_n(&ended, __ATOMIC_SEQ_CST) < made)
        sched_yield();
    /* The deep one again: alone, so that its size is what is printed. */
    CHECK(!pthread_create(&thread, 0, deep_thread, 0) && !pthread_join(thread, 0));
}

int main(int count, char **arguments)
{
    const char *what = count > 1 ? arguments[1] : "";
    long deep = count > 2 ? atol(arguments[2]) * MIB : 3 * MIB, size;
    char *start;
    if (!strcmp(what, "overflow")) {
        descend(1l << 40, nothing);
        return 0;
    }
    descend(deep, nothing);
    attributes(&size, &start);
    long main_huge = huge(start, start + size);
    printf("main-size %ld main %ld\n", size >> 10, main_huge);
    fflush(stdout);
    descend(deep, forks);
    threads(count > 3 ? atoi(arguments[3]) : 1000);
    printf("thread-size %ld thread %ld\n", thread_size >> 10, thread_huge);
    return 0;
}
