/* madvise of wholes and parts. On base pages every advice is taken for whole pages and refused for
 * parts of one; a child sees what was to be wiped as zeroes and what was not to be copied not at all. */
#include "common.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static int every_advice(void)
{
    static const int advices[] = {
        MADV_WIPEONFORK, MADV_KEEPONFORK, MADV_DONTFORK,      MADV_DOFORK,         MADV_DONTDUMP,
        MADV_DODUMP,     MADV_MERGEABLE,  MADV_UNMERGEABLE,   MADV_COLD,           MADV_PAGEOUT,
        MADV_FREE,       MADV_WILLNEED,   MADV_RANDOM,        MADV_SEQUENTIAL,     MADV_NORMAL,
        MADV_NOHUGEPAGE, MADV_HUGEPAGE,   MADV_POPULATE_READ, MADV_POPULATE_WRITE, 102 /* install a guard */,
        103 /* remove it */,
    };
    char *start = map_filled(8 * MIB);
    for (size_t i = 0; i < sizeof advices / sizeof *advices; i++) {
        printf("advice %d: whole %s", advices[i], outcome(madvise(start, 8 * MIB, advices[i])));
        printf(", part %s", outcome(madvise(start + PAGE, PAGE, advices[i])));
        printf(", part of a page %s", outcome(madvise(start + 1, PAGE, advices[i])));
        printf(", reads %s\n", load(start + 5 * MIB));
    }
    return 0;
}

/* Wipes [offset, offset + part) of a mapping on fork; counts what a child finds wiped. */
static void wipe(size_t length, size_t offset, size_t part)
{
    char *start = map_filled(length);
    printf("of %zu KiB [%zu, +%zu): ", length >> 10, offset >> 10, part >> 10);
    printf("%s", outcome(madvise(start + offset, part, MADV_WIPEONFORK)));
    pid_t child = fork();
    if (!child) {
        int inside = 0, outside = 0;
        for (size_t at = 0; at < length; at += PAGE)
            if (!start[at])
                at >= offset && at < offset + part ? inside++ : outside++;
        printf(", child sees %d pages wiped inside, %d outside", inside, outside);
        _exit(0);
    }
    ended_well("", child);
    printf("parent has %d\n", start[offset]);
    munmap(start, length);
}

static int wipe_on_fork(void)
{
    wipe(8 * MIB, 0, 8 * MIB);
    wipe(8 * MIB, PAGE, PAGE);
    wipe(8 * MIB, MIB, 4 * MIB);
    wipe(4 * MIB, 0, 4 * MIB);
    /* Many small mappings lie near each other. */
    for (int i = 0; i < 40; i++)
        memset(map(200000), 1, 200000);
    wipe(PAGE, 0, PAGE);
    wipe(MIB, 0, MIB);
    return 0;
}

static int do_not_fork(void)
{
    char *whole = map_filled(4 * MIB), *part = map_filled(4 * MIB);
    printf("whole %s", outcome(madvise(whole, 4 * MIB, MADV_DONTFORK)));
    printf(", part %s\n", outcome(madvise(part + 2 * PAGE, 2 * PAGE, MADV_DONTFORK)));
    pid_t child = fork();
    if (!child) {
        printf("child: whole %s, part %s", load(whole), load(part + 2 * PAGE));
        printf(", beside it %s\n", load(part));
        _exit(0);
    }
    return !ended_well("child", child);
}

/* Advice against superpages right after mmap. */
static int no_superpages(void)
{
    char *start = map(64 * MIB);
    printf("madvise %s", outcome(madvise(start, 64 * MIB, MADV_NOHUGEPAGE)));
    memset(start, 1, 64 * MIB);
    printf(", %ld KiB on superpages\n", superpage_kib(start));
    return 0;
}

/* Nothing of a fresh mapping is resident, of a touched page only that page's neighbours may be. */
static int fresh_memory_is_not_resident(void)
{
    static unsigned char resident[8192];
    for (int round = 0; round < 5; round++) {
        char *start = map(32 * MIB);
        int pages = 0;
        mincore(start, 32 * MIB, resident);
        for (int i = 0; i < 8192; i++)
            pages += resident[i] & 1;
        printf("%d pages resident\n", pages);
        memset(start, 1, 32 * MIB);
        munmap(start, 32 * MIB);
        usleep(20000);
    }
    return 0;
}

/* Memory is populated as it is mapped, also where the kernel has no advice for that: here every MADV_POPULATE_WRITE
 * fails. */
static int populates_without_advice(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 2),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, MADV_POPULATE_WRITE, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program)) {
        printf("no seccomp filter: %s\n", strerrorname_np(errno));
        return SKIPPED;
    }
    execl("/proc/self/exe", "advice", "populates", (char *)0);
    return 1;
}

static int populates(void)
{
    static unsigned char resident[8192];
    int pages = 0;
    char *start = map_as(32 * MIB, MAP_PRIVATE | MAP_POPULATE);
    mincore(start, 32 * MIB, resident);
    for (int i = 0; i < 8192; i++)
        pages += resident[i] & 1;
    printf("%d pages resident\n", pages);
    return 0;
}

static int policy_at(char *address)
{
    int policy = -1;
    syscall(SYS_get_mempolicy, &policy, 0, 0, address, 2 /* MPOL_F_ADDR */);
    return policy;
}

/* What memory policy holds when contents were discarded, a page is read-only, and the other process of a fork has it. */
static int memory_policy(void)
{
    unsigned long nodes = 1;
    char *start = map_filled(8 * MIB), *middle = start + 4 * MIB;
    long result = syscall(SYS_mbind, start, 8 * MIB, 1 /* MPOL_PREFERRED */, &nodes, 64, 0);
    printf("mbind %s, policy %d", outcome(result), policy_at(middle));
    madvise(start, 8 * MIB, MADV_DONTNEED);
    printf(", discarded %d", policy_at(middle));
    memset(start, 7, 8 * MIB);
    mprotect(middle + PAGE, PAGE, PROT_READ);
    printf(", protected %d, beside it %d", policy_at(middle + PAGE), policy_at(middle));
    munmap(start, PAGE);
    printf(", unmapped %d\n", policy_at(start + PAGE));
    pid_t child = fork();
    if (!child)
        _exit(policy_at(middle));
    return ended_well("child", child);
}

MAIN(CASE(memory_policy), CASE(populates_without_advice), CASE(populates), CASE(every_advice), CASE(wipe_on_fork), CASE(do_not_fork), CASE(no_superpages),
     CASE(fresh_memory_is_not_resident))
