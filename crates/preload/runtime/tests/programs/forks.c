/* Forks amid threads that map, unmap in part, write, allocate and use stdio, one of them with a line of
 * a megabyte; each child checks what it inherits, maps, opens a file, and some fork again. Argument: how
 * many forks. A circle of locks is ended by the alarm. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORDS ((32ul << 20) / sizeof(long))

static volatile int stop;
static volatile long *own;

static char *map(size_t length)
{
    char *start = mmap(0, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED)
        _exit(20);
    return start;
}

static void *maps(void *seed)
{
    unsigned state = (long)seed * 7 + 1;
    while (!stop) {
        state = state * 1103515245 + 12345;
        size_t length = (1 + (state >> 16) % 6) << 20;
        char *start = map(length);
        for (size_t at = 0; at < length; at += 4096)
            start[at] = 1;
        if (state & 64)
            munmap(start + 4096, 4096);
        munmap(start, length);
        char *object = malloc(200000);
        memset(object, 1, 200000);
        free(object);
    }
    return 0;
}

static void *writes(void *unused)
{
    while (!stop)
        for (size_t at = WORDS / 2; at < WORDS; at += 512)
            own[at]++;
    return unused;
}

static void *reads_lines(void *file)
{
    while (!stop) {
        char *line = 0;
        size_t size = 0;
        rewind(file);
        if (getline(&line, &size, file) < 1 << 20)
            _exit(21);
        free(line);
    }
    return 0;
}

static void *flushes(void *unused)
{
    while (!stop)
        fflush(NULL);
    return unused;
}

static int in_child(int round)
{
    alarm(90);
    for (size_t at = 0; at < WORDS / 2; at++)
        if (own[at] != (long)at)
            return 1;
    memset(map(8 << 20), 3, 8 << 20);
    for (size_t at = 0; at < WORDS / 2; at++)
        own[at] = 7;
    FILE *file = fopen("/dev/null", "r");
    char *object = malloc(3 << 20);
    if (!file || !object)
        return 2;
    memset(object, 1, 3 << 20);
    if (round % 8 == 0) {
        int status;
        pid_t child = fork();
        if (child == 0)
            _exit(own[5] != 7);
        if (waitpid(child, &status, 0) != child || status)
            return 3;
    }
    return 0;
}

int main(int count, char **arguments)
{
    int forks = count > 1 ? atoi(arguments[1]) : 100;
    FILE *lines = tmpfile();
    pthread_t threads[5];
    alarm(300);
    char *line = malloc(1 << 20);
    memset(line, 'x', 1 << 20);
    if (!lines || fwrite(line, 1, 1 << 20, lines) != 1 << 20 || fputc('\n', lines) == EOF)
        return 22;
    own = (long *)map(WORDS * sizeof(long));
    for (size_t at = 0; at < WORDS; at++)
        own[at] = at;
    pthread_create(threads, 0, maps, (void *)1);
    pthread_create(threads + 1, 0, maps, (void *)2);
    pthread_create(threads + 2, 0, writes, 0);
    pthread_create(threads + 3, 0, reads_lines, lines);
    pthread_create(threads + 4, 0, flushes, 0);
    for (int round = 0; round < forks; round++) {
        int status;
        pid_t child = fork();
        if (child == 0)
            _exit(in_child(round));
        if (child < 0 || waitpid(child, &status, 0) != child || status) {
            printf("fork %d: status %x\n", round, status);
            return 1;
        }
        for (size_t at = 0; at < WORDS / 2; at++)
            if (own[at] != (long)at)
                return 23;
    }
    stop = 1;
    for (int at = 0; at < 5; at++)
        pthread_join(threads[at], 0);
    printf("forks %d\n", forks);
    return 0;
}
