/* Threads that are cancelled, interrupted by signals, abandoned by exit or lost in a fork while they
 * map and allocate. On base pages nothing waits for them. */
#include "common.h"
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/time.h>

/* Only system calls: what may be cancelled at any instruction. */
static void *map_until_cancelled(void *unused)
{
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, 0);
    for (;;) {
        char *start = mmap(0, 6 * MIB, READ_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        start[0] = 1;
        munmap(start + PAGE, PAGE);
        munmap(start, 6 * MIB);
    }
    return unused;
}

static int cancelled_while_mapping(void)
{
    for (int i = 0; i < 100; i++) {
        pthread_t thread;
        pthread_create(&thread, 0, map_until_cancelled, 0);
        usleep(500);
        pthread_cancel(thread);
        pthread_join(thread, 0);
    }
    printf("100 threads\n");
    return churn();
}

/* The next alarm; from the end of the last one's handler on, so that what it interrupts goes on however long that
 * takes on a busy machine. */
static volatile int alarms;
static void set_alarm(void)
{
    struct itimerval once = {{0, 0}, {0, 700}};
    setitimer(ITIMER_REAL, &once, 0);
}

static void map_and_fork(int number)
{
    char *start = map(4 * MIB);
    (void)number;
    start[0] = 1;
    munmap(start, PAGE);
    munmap(start + PAGE, 4 * MIB - PAGE);
    if (++alarms % 20 == 0) {
        pid_t child = fork();
        if (!child)
            _exit(0);
        waitpid(child, 0, 0);
    }
    set_alarm();
}

/* A handler that maps, unmaps and forks, in the midst of calls that do. */
static int alarms_while_mapping(void)
{
    struct itimerval never = {{0, 0}, {0, 0}};
    int failed = 0;
    signal(SIGALRM, map_and_fork);
    set_alarm();
    for (int i = 0; i < 1000 && alarms < 200; i++)
        failed |= churn();
    setitimer(ITIMER_REAL, &never, 0);
    printf("alarms: %s, failed %d\n", alarms >= 200 ? "200" : "few", failed);
    return 0;
}

static void *churn_on(void *unused)
{
    while (!churn())
        ;
    return unused;
}

static void start_churning(int threads)
{
    pthread_t thread;
    while (threads--)
        pthread_create(&thread, 0, churn_on, 0);
    usleep(50000);
}

static int exit_while_threads_allocate(void)
{
    start_churning(3);
    exit(4);
}

static int fork_while_threads_allocate(void)
{
    start_churning(3);
    for (int i = 0; i < 15; i++) {
        int status;
        pid_t child = fork();
        if (!child) {
            alarm(90);
            _exit(churn());
        }
        waitpid(child, &status, 0);
        if (status) {
            printf("child %x\n", status);
            _exit(1);
        }
    }
    printf("15 children\n");
    _exit(0);
}

static pthread_barrier_t all_there;
static void *allocate_together(void *number)
{
    char *memory = malloc(20000), *start = map(256 * 1024);
    memory[0] = start[0] = 1;
    pthread_barrier_wait(&all_there);
    munmap(start, 256 * 1024);
    free(memory);
    return number;
}

static int thousand_threads(void)
{
    static pthread_t threads[1000];
    pthread_attr_t small;
    long joined = 0;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 * 1024);
    pthread_barrier_init(&all_there, 0, 1000);
    for (long i = 0; i < 1000; i++)
        if (pthread_create(threads + i, &small, allocate_together, (void *)i))
            return printf("thread %ld could not be made\n", i), 1;
    for (long i = 0; i < 1000; i++) {
        void *number;
        pthread_join(threads[i], &number);
        joined += (long)number == i;
    }
    printf("%ld threads\n", joined);
    return churn();
}

/* Each thread has memory that another one frees, resizes or unmaps. */
static void *give(void *unused)
{
    char **both = malloc(2 * sizeof *both);
    both[0] = memset(malloc(MIB), 5, MIB);
    both[1] = memset(map(4 * MIB), 5, 4 * MIB);
    (void)unused;
    return both;
}

static int memory_of_finished_threads(void)
{
    int wrong = 0;
    for (int i = 0; i < 40; i++) {
        pthread_t thread;
        void *given;
        pthread_create(&thread, 0, give, 0);
        pthread_join(thread, &given);
        char **both = given;
        both[0] = realloc(both[0], 3 * MIB);
        wrong += both[0][0] != 5 || both[0][MIB - 1] != 5 || both[1][4 * MIB - 1] != 5;
        free(both[0]);
        munmap(both[1], 4 * MIB);
        free(both);
    }
    printf("wrong %d\n", wrong);
    return 0;
}

/* No cancellation point, but it waits. */
static void *ask_until_cancelled(void *descriptor)
{
    int waiting;
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, 0);
    for (;;)
        ioctl(*(int *)descriptor, FIONREAD, &waiting);
    return 0;
}

static int cancelled_in_ioctl(void)
{
    int ends[2];
    if (pipe(ends))
        return 2;
    for (int i = 0; i < 200; i++) {
        pthread_t thread;
        pthread_create(&thread, 0, ask_until_cancelled, ends);
        usleep(200);
        pthread_cancel(thread);
        pthread_join(thread, 0);
    }
    printf("200 threads\n");
    return churn();
}

MAIN(CASE(cancelled_in_ioctl), CASE(cancelled_while_mapping), CASE(alarms_while_mapping), CASE(exit_while_threads_allocate),
     CASE(fork_while_threads_allocate), CASE(thousand_threads), CASE(memory_of_finished_threads))
