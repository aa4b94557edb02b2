/* Programs that confine themselves: seccomp filters that allow what glibc's malloc needs, namespaces,
 * another user, another root. On base pages they go on as before. */
#include "common.h"
#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define ALLOW(call)                                                                                \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static int allows_processes, allows_threads;

/* Allows malloc's system calls, output and the end; all others have `verdict`. */
static void confine(unsigned verdict, int flags)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(SYS_read), ALLOW(SYS_write), ALLOW(SYS_brk), ALLOW(SYS_mmap), ALLOW(SYS_munmap),
        ALLOW(SYS_mremap), ALLOW(SYS_mprotect), ALLOW(SYS_madvise), ALLOW(SYS_futex),
        ALLOW(SYS_exit), ALLOW(SYS_exit_group), ALLOW(SYS_rt_sigreturn), ALLOW(SYS_clock_gettime),
        ALLOW(SYS_clock_nanosleep), ALLOW(SYS_getrandom),
        ALLOW(allows_processes ? SYS_clone : SYS_read), ALLOW(allows_processes ? SYS_wait4 : SYS_read),
        ALLOW(allows_processes ? SYS_set_robust_list : SYS_read),
        ALLOW(allows_processes ? SYS_rt_sigprocmask : SYS_read),
        ALLOW(allows_processes ? SYS_gettid : SYS_read), ALLOW(allows_processes ? SYS_getpid : SYS_read),
        ALLOW(allows_threads ? SYS_clone3 : SYS_read), ALLOW(allows_threads ? SYS_clone : SYS_read),
        ALLOW(allows_threads ? SYS_rseq : SYS_read), ALLOW(allows_threads ? SYS_set_robust_list : SYS_read),
        ALLOW(allows_threads ? SYS_rt_sigprocmask : SYS_read),
        BPF_STMT(BPF_RET | BPF_K, verdict),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    use_memory();
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program)) {
        printf("no seccomp filter: %s\n", strerrorname_np(errno));
        _exit(SKIPPED);
    }
}

static int filter_that_kills(void)
{
    confine(SECCOMP_RET_KILL_PROCESS, 0);
    printf("churn %d\n", churn());
    return 0;
}

static int filter_that_refuses(void)
{
    confine(SECCOMP_RET_ERRNO | EPERM, 0);
    printf("churn %d\n", churn());
    return 0;
}

/* Of all threads, as libseccomp sets it; and nothing happens behind the program's back later. */
static int filter_of_all_threads(void)
{
    confine(SECCOMP_RET_KILL_PROCESS, SECCOMP_FILTER_FLAG_TSYNC);
    for (int i = 0; i < 10; i++) {
        free(memset(malloc(10 * MIB), 1, 10 * MIB));
        for (int size = 0; size < 1000; size++)
            free(malloc(size * 100));
        usleep(20000);
    }
    printf("churn %d\n", churn());
    return 0;
}

/* What was mapped before is unmapped, protected, discarded and moved in parts after. */
static int filter_and_parts(void)
{
    char *memory[6], *large = map_filled(70 * MIB + PAGE), *object = aligned_alloc(PAGE, 16 * MIB);
    memset(object, 7, 16 * MIB);
    for (int i = 0; i < 6; i++)
        memory[i] = map_filled((5 + i) * MIB);
    confine(SECCOMP_RET_KILL_PROCESS, 0);
    printf("unmap %s\n", outcome(munmap(memory[0] + 3 * MIB + PAGE, PAGE)));
    printf("protect %s\n", outcome(mprotect(memory[1] + 3 * MIB + PAGE, PAGE, PROT_READ)));
    printf("discard %s\n", outcome(madvise(memory[2] + 3 * MIB + PAGE, PAGE, MADV_DONTNEED)));
    memory[3] = mremap(memory[3], 8 * MIB, 64 * MIB, MREMAP_MAYMOVE);
    printf("grow %s\n", mapped(memory[3]));
    memory[4] = mremap(memory[4], 9 * MIB, 3 * MIB + PAGE, 0);
    printf("shrink %s\n", mapped(memory[4]));
    printf("unmap all %s\n", outcome(munmap(memory[5], 10 * MIB)));
    for (int i = 0; i < 5; i++)
        printf("%d %d %d\n", memory[i][0], memory[i][3 * MIB], i == 3 ? memory[i][60 * MIB] : 0);
    large = mremap(large, 70 * MIB + PAGE, 140 * MIB, MREMAP_MAYMOVE);
    printf("grow %s", mapped(large));
    printf(", %d %d %d %d\n", large[0], large[33 * MIB], large[70 * MIB], large[100 * MIB]);
    printf("protect malloc's %s\n", outcome(mprotect(object + 3 * MIB, PAGE, PROT_READ)));
    printf("discarded %d, beside %d\n", memory[2][3 * MIB + PAGE], memory[2][3 * MIB + 2 * PAGE]);
    printf("churn %d\n", churn());
    return 0;
}

/* Where processes may be made, but no file opened. */
static int filter_and_fork(void)
{
    char *memory = map_filled(6 * MIB), *object = aligned_alloc(PAGE, 16 * MIB);
    memset(object, 7, 16 * MIB);
    allows_processes = 1;
    confine(SECCOMP_RET_KILL_PROCESS, 0);
    pid_t child = fork();
    if (!child) {
        memory[3 * MIB] = object[3 * MIB] = 8;
        _exit(churn() || memory[0] != 7 || object[0] != 7);
    }
    int failed = !ended_well("child", child);
    printf("%d %d, churn %d\n", memory[3 * MIB], object[3 * MIB], churn());
    return failed;
}

/* Who asks whether there are filters has none. */
static int asks_for_filters(void)
{
    char *memory = map_filled(6 * MIB), *allocated = aligned_alloc(PAGE, 16 * MIB);
    memset(allocated, 7, 16 * MIB);
    printf("filter %s", outcome(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, 0, 0, 0)));
    printf(", flags %s\n", outcome(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, 0)));
    printf("%s\n", outcome(mprotect(allocated + 3 * MIB, PAGE, PROT_READ)));
    printf("%s\n", outcome(mprotect(memory + 3 * MIB, PAGE, PROT_READ)));
    return churn();
}

static sem_t go;

static void *waits(void *unused)
{
    sem_wait(&go);
    return unused;
}

static void *allocates(void *unused)
{
    free(memset(malloc(100000), 1, 100000));
    return unused;
}

/* Threads of before end after, and others begin: what pthreads need is allowed, and no more. */
static int filter_and_threads(void)
{
    pthread_t early[20], late;
    int joined = 0;
    for (int i = 0; i < 20; i++)
        pthread_create(&early[i], 0, waits, 0);
    for (int i = 0; i < 10; i++)
        pthread_detach(early[i]);
    allows_threads = 1;
    confine(SECCOMP_RET_KILL_PROCESS, SECCOMP_FILTER_FLAG_TSYNC);
    for (int i = 0; i < 20; i++)
        sem_post(&go);
    for (int i = 10; i < 20; i++)
        joined += !pthread_join(early[i], 0);
    for (int i = 0; i < 30; i++)
        if (!pthread_create(&late, 0, allocates, 0))
            joined += !pthread_join(late, 0);
    printf("joined %d, churn %d\n", joined, churn());
    return 0;
}

/* Entering them is allowed to processes of one thread only. */
static int enters_namespaces(void)
{
    use_memory();
    int mounts = open("/proc/self/ns/mnt", O_RDONLY), pids = open("/proc/self/ns/pid", O_RDONLY);
    printf("mounts %s", outcome(setns(mounts, CLONE_NEWNS)));
    printf(", processes %s\n", outcome(setns(pids, CLONE_NEWPID)));
    return churn();
}

static int leaves_namespaces(void)
{
    use_memory();
    printf("users %s", outcome(unshare(CLONE_NEWUSER)));
    printf(", mounts %s", outcome(unshare(CLONE_NEWNS)));
    printf(", memory %s", outcome(unshare(CLONE_VM | CLONE_SIGHAND | CLONE_THREAD)));
    printf(", files %s\n", outcome(unshare(CLONE_FS | CLONE_FILES)));
    return churn();
}

/* Every thread of the process has the new user and none of the old privileges. */
static int becomes_nobody(void)
{
    use_memory();
    printf("groups %s", outcome(setgroups(0, 0)));
    printf(", group %s", outcome(setresgid(65534, 65534, 65534)));
    printf(", user %s\n", outcome(setresuid(65534, 65534, 65534)));
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *task; (task = readdir(tasks));) {
        char path[300], line[256];
        snprintf(path, sizeof path, "/proc/self/task/%s/status", task->d_name);
        FILE *file = task->d_name[0] == '.' ? 0 : fopen(path, "r");
        while (file && fgets(line, sizeof line, file))
            if (!strncmp(line, "Name:", 5) || !strncmp(line, "Uid:", 4)
                || !strncmp(line, "CapEff:", 7))
                printf("%s", line);
        if (file)
            fclose(file);
    }
    return churn();
}

static int changes_root(void)
{
    char path[] = "/tmp/emptyXXXXXX", *before[3];
    use_memory();
    for (int i = 0; i < 3; i++)
        before[i] = map_filled(8 * MIB);
    int parent = open("/tmp", O_RDONLY | O_DIRECTORY);
    int failed = !mkdtemp(path) || chroot(path) || chdir("/");
    unlinkat(parent, path + strlen("/tmp/"), AT_REMOVEDIR);
    printf("chroot %d, churn %d\n", failed, churn());
    printf("unmap %s", outcome(munmap(before[0] + 3 * MIB + PAGE, PAGE)));
    printf(", protect %s", outcome(mprotect(before[1] + 3 * MIB + PAGE, PAGE, PROT_READ)));
    printf(", discard %s", outcome(madvise(before[2] + 3 * MIB + PAGE, PAGE, MADV_DONTNEED)));
    printf(", %d %d\n", before[1][3 * MIB], before[2][3 * MIB + PAGE]);
    pid_t child = fork();
    if (!child)
        _exit(churn());
    return !ended_well("child", child);
}

static int closes_all_descriptors(void)
{
    use_memory();
    for (int fd = 3; fd < 1024; fd++)
        close(fd);
    int first = open("/dev/null", O_RDONLY);
    printf("churn %d, first descriptor %d\n", churn(), first);
    pid_t child = fork();
    if (!child)
        _exit(churn());
    return !ended_well("child", child);
}

MAIN(CASE(filter_that_kills), CASE(filter_that_refuses), CASE(filter_of_all_threads),
     CASE(filter_and_parts), CASE(filter_and_fork), CASE(filter_and_threads), CASE(asks_for_filters),
     CASE(enters_namespaces), CASE(leaves_namespaces), CASE(becomes_nobody), CASE(changes_root),
     CASE(closes_all_descriptors))
