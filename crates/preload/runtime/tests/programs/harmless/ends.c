/* Ends that must be ends. On base pages a process is over when its last thread is, with the status
 * or signal that it chose. */
#include "common.h"
#include <linux/seccomp.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

static void *outlive_main(void *unused)
{
    usleep(100000);
    printf("second thread done\n");
    return unused;
}

/* Memory was used and given back, so that whatever the library prepares is at work. */
static void begin(void)
{
    use_memory();
    memset(malloc(20 * MIB), 1, 20 * MIB);
}

static int main_thread_leaves(void)
{
    pthread_t thread;
    begin();
    pthread_create(&thread, 0, outlive_main, 0);
    pthread_exit(0);
}

/* The exit system call ends a thread, here the only one. */
static int raw_exit(void)
{
    begin();
    return syscall(SYS_exit, 5);
}

static int strict_seccomp_and_exit(void)
{
    begin();
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
    write(1, "strict\n", 7);
    return syscall(SYS_exit, 6);
}

static int strict_seccomp_and_a_forbidden_call(void)
{
    begin();
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
    return getppid();
}

/* What fits into memory that malloc has needs no system call. */
static int strict_seccomp_and_malloc(void)
{
    char *memory[50];
    begin();
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
    for (int i = 0; i < 50; i++) {
        memory[i] = malloc(100 + i);
        memory[i][0] = 1;
    }
    for (int i = 0; i < 50; i++)
        free(memory[i]);
    return syscall(SYS_exit, 0);
}

static int aborts(void)
{
    begin();
    abort();
}

static int segmentation_fault(void)
{
    begin();
    *(volatile int *)8 = 1;
    return 0;
}

static int leaves_at_once(void)
{
    begin();
    _exit(7);
}

static void last_words(void)
{
    printf("handler %d\n", churn());
}

static int leaves_quickly(void)
{
    begin();
    at_quick_exit(last_words);
    quick_exit(8);
}

static int leaves_with_handlers(void)
{
    begin();
    atexit(last_words);
    exit(9);
}

static int executes_another(void)
{
    begin();
    execl("/bin/echo", "echo", "executed", (char *)0);
    return 1;
}

/* Whatever is to be said at the end, nobody hears it. */
static int standard_error_is_a_closed_pipe(void)
{
    int ends[2];
    pipe(ends);
    dup2(ends[1], 2);
    close(ends[0]);
    close(ends[1]);
    execl("/proc/self/exe", "ends", "leaves_with_handlers", (char *)0);
    return 1;
}

/* Who writes more to a file gets a signal. */
static int files_may_have_no_bytes(void)
{
    struct rlimit none = {0, 0};
    begin();
    pid_t child = fork();
    if (!child) {
        setrlimit(RLIMIT_FSIZE, &none);
        exit(9);
    }
    ended_well("child", child);
    return 0;
}

/* A daemon closes its standard files, and its data get their numbers. */
static int another_file_is_standard_error(void)
{
    char path[] = "/tmp/dataXXXXXX";
    int data = mkstemp(path);
    unlink(path);
    begin();
    pid_t child = fork();
    if (!child) {
        dup2(data, 2);
        write(2, "data", 4);
        exit(9);
    }
    ended_well("child", child);
    printf("%ld bytes of data\n", (long)lseek(data, 0, SEEK_END));
    return 0;
}

MAIN(CASE(main_thread_leaves), CASE(raw_exit), CASE(strict_seccomp_and_exit),
     CASE(strict_seccomp_and_a_forbidden_call), CASE(strict_seccomp_and_malloc), CASE(aborts),
     CASE(segmentation_fault), CASE(leaves_at_once), CASE(leaves_quickly),
     CASE(leaves_with_handlers), CASE(executes_another), CASE(standard_error_is_a_closed_pipe),
     CASE(files_may_have_no_bytes), CASE(another_file_is_standard_error))
