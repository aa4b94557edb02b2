/* Limits that a program sets for itself, and locked memory. On base pages a limit counts what the
 * program uses and nothing else. */
#include "common.h"
#include <sys/resource.h>
#include <sys/syscall.h>

static void limit(int resource, size_t most)
{
    struct rlimit both = {most, most};
    printf("limit %s\n", outcome(setrlimit(resource, &both)));
}

/* How many megabytes malloc has, of at most `most`. */
static int allocate(int most, char **memory)
{
    int count = 0;
    while (count < most && (memory[count] = malloc(MIB)))
        memset(memory[count++], 1, MIB);
    return count;
}

static int address_space(void)
{
    char *memory[200];
    use_memory();
    limit(RLIMIT_AS, 300 * MIB);
    int count = allocate(200, memory);
    printf("%d MiB\n", count);
    while (count--)
        free(memory[count]);
    return churn();
}

/* The last megabytes depend on malloc's own mappings. */
static int data(void)
{
    char *memory[400];
    use_memory();
    limit(RLIMIT_DATA, 150 * MIB);
    int count = allocate(400, memory);
    printf("more than 110 MiB: %d, then %s\n", count > 110, strerrorname_np(errno));
    while (count--)
        free(memory[count]);
    return churn();
}

static int descriptors(void)
{
    use_memory();
    limit(RLIMIT_NOFILE, 3);
    printf("churn %d\n", churn());
    pid_t child = fork();
    if (!child)
        _exit(churn());
    return !ended_well("child", child);
}

static int processes(void)
{
    printf("user %s\n", outcome(setresuid(12345, 12345, 12345)));
    limit(RLIMIT_NPROC, 1);
    use_memory();
    printf("churn %d, fork %s\n", churn(), outcome(fork() < 0 ? -1 : 0));
    return 0;
}

static int stack(void)
{
    limit(RLIMIT_STACK, 256 * 1024);
    use_memory();
    return churn();
}

/* Becomes an ordinary user; how much it may lock: 100 MiB, or what the machine allows. */
static size_t become_a_user_who_may_lock(void)
{
    struct rlimit now, both = {100 * MIB, 100 * MIB};
    setrlimit(RLIMIT_MEMLOCK, &both);
    getrlimit(RLIMIT_MEMLOCK, &now);
    printf("user %s\n", outcome(setuid(65534)));
    return now.rlim_cur < 100 * MIB ? now.rlim_cur : 100 * MIB;
}

/* An ordinary user locks everything after a first malloc. */
static int lock_everything(void)
{
    size_t most = become_a_user_who_may_lock();
    memset(malloc(most / 8), 1, most / 8);
    printf("mlockall %s", outcome(mlockall(MCL_CURRENT | MCL_FUTURE)));
    printf(", locked %s\n", status_kib("VmLck:") < (long)(most >> 10) ? "no more" : "more");
    free(malloc(most / 8));
    printf("munlockall %s", outcome(munlockall()));
    printf(", locked %s\n", status_kib("VmLck:") <= 0 ? "nothing" : "something");
    return churn();
}

static int lock_everything_as_root(void)
{
    use_memory();
    printf("mlockall %s", outcome(mlockall(MCL_CURRENT | MCL_FUTURE)));
    printf(", churn %d", churn());
    printf(", locked %s\n", status_kib("VmLck:") < 128 * 1024 ? "less than 128 MiB" : "more");
    return 0;
}

/* A locked mapping is unmapped, over and over. */
static int lock_and_unmap(size_t length)
{
    for (int round = 0; round < 10; round++) {
        char *start = map(length);
        printf("mlock %s", outcome(mlock(start, length)));
        memset(start, 1, length);
        printf(", locked %s", status_kib("VmLck:") == (long)(length >> 10) ? "it" : "something else");
        munmap(start, length);
        printf(", then %ld KiB\n", status_kib("VmLck:"));
        usleep(10000);
    }
    return 0;
}

static int unmap_what_is_locked(void)
{
    return lock_and_unmap(become_a_user_who_may_lock() / 2);
}

static int unmap_what_root_locked(void)
{
    return lock_and_unmap(32 * MIB);
}

static int lock_parts(void)
{
    unsigned char resident;
    char *start = map(8 * MIB);
    printf("mlock %s", outcome(mlock(start + PAGE, PAGE)));
    printf(", VmLck %ld KiB", status_kib("VmLck:"));
    printf(", munlock %s", outcome(munlock(start + PAGE, PAGE)));
    printf(", VmLck %ld KiB", status_kib("VmLck:"));
    printf(", mlock2 %s", outcome(mlock2(start + 2 * PAGE, PAGE, MLOCK_ONFAULT)));
    printf(", VmLck %ld KiB", status_kib("VmLck:"));
    printf(", mincore %s", outcome(mincore(start + PAGE, PAGE, &resident)));
    printf(" %d\n", resident & 1);
    return 0;
}

/* A child has none of its parent's locks, whatever it then does with its memory. */
static int locks_of_a_child(void)
{
    use_memory();
    printf("mlockall %s\n", outcome(mlockall(MCL_CURRENT)));
    pid_t child = fork();
    if (!child) {
        char *start = map_filled(8 * MIB);
        printf("protect %s", outcome(mprotect(start + PAGE, PAGE, PROT_READ)));
        printf(", locked %ld KiB\n", status_kib("VmLck:"));
        _exit(0);
    }
    return !ended_well("child", child);
}

/* What a child finds of 40 MiB that its parent filled. */
static int read_by_a_child(char *start)
{
    pid_t child = fork();
    if (child < 0)
        return printf("fork: %s\n", strerrorname_np(errno)), 1;
    if (!child) {
        int lost = 0;
        for (size_t at = 0; at < 40 * MIB; at += PAGE)
            lost |= start[at] != 7;
        _exit(lost);
    }
    return !ended_well("child", child);
}

/* A limit leaves no room for a second copy: a fork needs none. */
static int address_space_and_fork(void)
{
    char *start = map_filled(40 * MIB);
    limit(RLIMIT_AS, 70 * MIB);
    return read_by_a_child(start);
}

static int data_and_fork(void)
{
    char *start = map_filled(40 * MIB);
    limit(RLIMIT_DATA, 50 * MIB);
    return read_by_a_child(start);
}

/* Set past libc's functions, with room for little. */
static int address_space_past_libc_and_fork(void)
{
    char *start = map_filled(40 * MIB);
    size_t most = ((size_t)status_kib("VmSize:") << 10) + 12 * MIB;
    struct rlimit both = {most, most};
    printf("limit %s\n", outcome(syscall(SYS_prlimit64, 0, RLIMIT_AS, &both, 0)));
    return read_by_a_child(start);
}

/* What is mapped counts, whatever it replaces on the way. */
static int data_counts_what_is_mapped(void)
{
    char *start = map_filled(40 * MIB);
    limit(RLIMIT_DATA, 64 * MIB);
    printf("80 MiB: %s", mapped(mmap(0, 80 * MIB, READ_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)));
    printf(", 4 MiB: %s\n", mapped(mmap(0, 4 * MIB, READ_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)));
    return read_by_a_child(start);
}

MAIN(CASE(address_space_and_fork), CASE(data_and_fork), CASE(address_space_past_libc_and_fork),
     CASE(data_counts_what_is_mapped), CASE(address_space), CASE(data), CASE(descriptors), CASE(processes), CASE(stack),
     CASE(lock_everything), CASE(lock_everything_as_root), CASE(unmap_what_is_locked),
     CASE(unmap_what_root_locked), CASE(lock_parts), CASE(locks_of_a_child))
