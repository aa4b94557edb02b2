/* What a design in force must not disturb, by the first word. Prints `ok`, or what is wrong.
 *   storm N LIVE   N children, LIVE of them at a time, that fill 2 MiB each
 *   threads N      N threads that each fill, discard and unmap memory at once
 *   exec N         executes itself N times with fresh memory */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, SIZE = 4 << 20 };

static char *fresh(void)
{
    char *memory = mmap(0, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? 0 : memory;
}

/* Whether the memory holds zeros before and what was written afterwards. */
static int keeps(char *memory, long pages, char with)
{
    for (long page = 0; page < pages; page++)
        if (memory[page * PAGE])
            return 0;
    for (long page = 0; page < pages; page++)
        memory[page * PAGE] = with;
    usleep(10000);
    for (long page = 0; page < pages; page++)
        if (memory[page * PAGE] != with || memory[page * PAGE + 1])
            return 0;
    return 1;
}

static void *works(void *number)
{
    char with = (long)number % 100 + 1;
    char *memory = fresh();
    if (!memory)
        return 0;
    for (int turn = 0; turn < 3; turn++) {
        if (!keeps(memory, SIZE / PAGE / 4, with))
            return 0;
        madvise(memory, SIZE, MADV_DONTNEED);
    }
    munmap(memory, SIZE);
    return number;
}

static int storm(int count, int most)
{
    int up = 0, status = 0, is_bad = 0;
    for (int child = 0; child < count || up; child++) {
        if (child >= count || up == most) {
            is_bad |= wait(&status) < 0 || status;
            up--;
        }
        if (child < count) {
            pid_t pid = fork();
            if (pid == 0)
                _exit(!keeps(fresh(), SIZE / PAGE / 2, child % 100 + 1));
            is_bad |= pid < 0;
            up++;
        }
    }
    return is_bad;
}

static int threads(int count)
{
    pthread_t *all = calloc(count, sizeof *all);
    pthread_attr_t small;
    int is_bad = 0;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 << 10);
    for (long at = 0; at < count; at++)
        is_bad |= pthread_create(all + at, &small, works, (void *)(at + 1));
    for (int at = 0; at < count && !is_bad; at++) {
        void *end = 0;
        is_bad |= pthread_join(all[at], &end) || !end;
    }
    return is_bad;
}

int main(int words, char **word)
{
    int count = words > 2 ? atoi(word[2]) : 0, is_bad = 1;
    if (!strcmp(word[1], "storm"))
        is_bad = storm(count, atoi(word[3]));
    else if (!strcmp(word[1], "threads"))
        is_bad = threads(count);
    else if (!strcmp(word[1], "exec")) {
        is_bad = !keeps(fresh(), SIZE / PAGE, count % 100 + 1);
        char left[16];
        sprintf(left, "%d", count - 1);
        if (!is_bad && count)
            execl(word[0], word[0], "exec", left, (char *)0);
    }
    puts(is_bad ? "bad" : "ok");
    return is_bad;
}
