/* Locks of stdio and of malloc around forks. On base pages neither case ever waits for long: glibc
 * takes malloc's locks after all of stdio's, and a child starts with none of them held. */
#include "common.h"
#include <pthread.h>

static volatile long lines, flushes, forks;
static FILE *input;

/* Lines of two megabytes into a buffer that grows while the stream is locked. */
static void *read_lines(void *unused)
{
    for (;; lines++) {
        char *line = 0;
        size_t size = 0;
        rewind(input);
        if (getline(&line, &size, input) < 0)
            _exit(3);
        free(line);
    }
    return unused;
}

static void *flush_all(void *unused)
{
    for (;; flushes++)
        fflush(NULL);
    return unused;
}

static void *fork_often(void *unused)
{
    for (;; forks++) {
        pid_t child = fork();
        if (!child)
            _exit(0);
        waitpid(child, 0, 0);
    }
    return unused;
}

/* Each of the three goes on for two seconds and beyond. */
static int getline_flush_and_fork(void)
{
    void *(*const work[])(void *) = {read_lines, flush_all, fork_often};
    pthread_t thread;
    memset(malloc(8 * MIB), 1, 8 * MIB);
    memset(map(8 * MIB), 1, 8 * MIB);
    input = tmpfile();
    for (int i = 0; i < 4; i++) {
        for (size_t at = 0; at < 2 * MIB; at++)
            putc('a', input);
        putc('\n', input);
    }
    for (int i = 0; i < 3; i++)
        pthread_create(&thread, 0, work[i], 0);
    sleep(2);
    long before[] = {lines, flushes, forks};
    int go_on = 0;
    /* glibc's lock of the list of files is not fair: a fork may wait for it long. */
    for (int tenths = 0; tenths < 900 && !go_on; tenths++) {
        usleep(100000);
        go_on = lines > before[0] && flushes > before[1] && forks > before[2];
    }
    /* Not dprintf, whose file another thread may flush meanwhile. */
    const char *said = go_on ? "all go on\n" : "stuck\n";
    if (write(1, said, strlen(said)) < 0)
        _exit(2);
    _exit(!go_on);
}

static void *sleep_on(void *unused)
{
    pause();
    return unused;
}

static void *open_a_file(void *unused)
{
    fopen("/dev/null", "r");
    pause();
    return unused;
}

/* A process with threads forks a server. The server forks once while it has one thread, then two of
 * its threads open files. */
static int server_of_a_threaded_process(void)
{
    pthread_t thread;
    memset(malloc(16 * MIB), 1, 16 * MIB);
    pthread_create(&thread, 0, sleep_on, 0);
    pid_t server = fork();
    if (!server) {
        alarm(90);
        pid_t child = fork();
        if (!child)
            _exit(0);
        waitpid(child, 0, 0);
        pthread_create(&thread, 0, open_a_file, 0);
        usleep(200000);
        fopen("/dev/null", "r");
        _exit(0);
    }
    return !ended_well("server", server);
}

/* Handlers of a fork that allocate, as libraries register them. */
static void allocate_in_handler(void)
{
    free(memset(malloc(3 * MIB), 1, 3 * MIB));
    free(malloc(100));
}

static int fork_handlers_that_allocate(void)
{
    pthread_t thread;
    pthread_atfork(allocate_in_handler, allocate_in_handler, allocate_in_handler);
    memset(malloc(16 * MIB), 1, 16 * MIB);
    pthread_create(&thread, 0, sleep_on, 0);
    for (int i = 0; i < 20; i++) {
        pid_t child = fork();
        if (!child)
            _exit(churn());
        int status;
        waitpid(child, &status, 0);
        if (status)
            return printf("child %x\n", status), 1;
    }
    printf("20 children\n");
    return 0;
}

MAIN(CASE(getline_flush_and_fork), CASE(server_of_a_threaded_process), CASE(fork_handlers_that_allocate))
