/* Processes made in every way that the kernel and libc have. On base pages each child sees its
 * parent's memory as it was, or the same memory where it was made so, and its writes stay its own. */
#include "common.h"
#include <sched.h>
#include <sys/syscall.h>

static int vforks(void)
{
    use_memory();
    for (int i = 0; i < 50; i++) {
        int status;
        pid_t child = vfork();
        if (!child) {
            char *start = map(6 * MIB);
            start[0] = 1;
            munmap(start + PAGE, 2 * PAGE);
            munmap(start, 6 * MIB);
            _exit(0);
        }
        waitpid(child, &status, 0);
        if (status)
            return printf("child %x\n", status), 1;
    }
    printf("50 children\n");
    return churn();
}

static int use_shared_memory(void *unused)
{
    memset(map(6 * MIB), 1, 6 * MIB);
    return unused != 0;
}

static int clones_in_the_same_memory(void)
{
    use_memory();
    char *stack = malloc(MIB);
    for (int i = 0; i < 20; i++) {
        int status;
        pid_t child = clone(use_shared_memory, stack + MIB, CLONE_VM | SIGCHLD, 0);
        waitpid(child, &status, 0);
        if (status)
            return printf("child %x\n", status), 1;
    }
    printf("20 children\n");
    return churn();
}

static pid_t raw_clone(void)
{
    return syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
}

/* Children read and write 40 MiB of malloc's and of mmap's, and the parent has its own again. */
static int children(pid_t (*make)(void), int count)
{
    char *memory[] = {malloc(40 * MIB), map(40 * MIB)};
    for (int i = 0; i < 2; i++)
        memset(memory[i], 7, 40 * MIB);
    for (int round = 0; round < count; round++) {
        int status;
        pid_t child = make();
        if (!child) {
            for (size_t at = 0; at < 40 * MIB; at += PAGE)
                if (memory[0][at] != 7 || memory[1][at] != 7)
                    _exit(9);
            for (int i = 0; i < 2; i++)
                memset(memory[i], 8, 40 * MIB);
            _exit(0);
        }
        waitpid(child, &status, 0);
        if (status)
            return printf("child %x\n", status), 1;
    }
    for (size_t at = 0; at < 40 * MIB; at += PAGE)
        if (memory[0][at] != 7 || memory[1][at] != 7)
            return printf("the parent's memory changed\n"), 1;
    printf("%d children\n", count);
    return churn();
}

static int raw_clones(void)
{
    return children(raw_clone, 6);
}

static int forks_without_handlers(void)
{
    return children(_Fork, 6);
}

static int forks(void)
{
    return children(fork, 6);
}

/* A child's child, and each writes. */
static int forks_of_forks(void)
{
    char *memory = memset(malloc(20 * MIB), 1, 20 * MIB);
    for (int depth = 0; depth < 6; depth++) {
        pid_t child = fork();
        if (child) {
            int status;
            waitpid(child, &status, 0);
            for (size_t at = 0; at < 20 * MIB; at += PAGE)
                if (memory[at] != depth + 1)
                    _exit(9);
            if (depth == 0)
                printf("children %x\n", status);
            _exit(status ? 1 : 0);
        }
        memset(memory, depth + 2, 20 * MIB);
    }
    _exit(churn());
}

MAIN(CASE(vforks), CASE(clones_in_the_same_memory), CASE(raw_clones), CASE(forks_without_handlers),
     CASE(forks), CASE(forks_of_forks))
