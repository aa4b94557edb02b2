/* Protection and discarding of parts of private memory. On base pages every page has the protection
 * it was given last, and discarded memory reads as zeroes and keeps its protection. */
#include "common.h"
#include <pthread.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <sys/syscall.h>

/* A guard in the midst of memory that is discarded as a whole stays a guard. */
static int discard_over_a_guard(void)
{
    char *start = map_filled(8 * MIB);
    printf("guard %s", outcome(mprotect(start + SUPERPAGE, SUPERPAGE, PROT_NONE)));
    printf(", discard %s\n", outcome(madvise(start, 8 * MIB, MADV_DONTNEED)));
    printf("before it %s, guard %s", store(start), store(start + SUPERPAGE));
    printf(", behind it %s\n", store(start + 2 * SUPERPAGE));
    return 0;
}

/* The same with the guard first. */
static int discard_from_a_guard(void)
{
    char *start = map_aligned(8 * MIB);
    printf("guard %s", outcome(mprotect(start, SUPERPAGE, PROT_NONE)));
    printf(", discard %s\n", outcome(madvise(start, 8 * MIB, MADV_DONTNEED)));
    printf("guard %s, behind it %s", store(start), store(start + SUPERPAGE));
    printf(" %s, reads %s\n", store(start + 2 * SUPERPAGE), load(start + 3 * SUPERPAGE));
    return 0;
}

/* One read-only page, and all of it discarded. */
static int discard_over_a_readonly_page(void)
{
    char *start = map_aligned(8 * MIB);
    mprotect(start, PAGE, PROT_READ);
    printf("discard %s, page %s", outcome(madvise(start, 8 * MIB, MADV_DONTNEED)), store(start));
    printf(", next page %s, next superpage %s", store(start + PAGE), store(start + SUPERPAGE));
    printf(", page reads %s\n", load(start + 100));
    return 0;
}

static int discard_part(void)
{
    char *start = map_filled(8 * MIB), *part = start + 3 * PAGE;
    printf("discard %s:", outcome(madvise(part, 3 * MIB, MADV_DONTNEED)));
    printf(" %d %d | %d %d |", start[0], part[-1], part[0], part[3 * MIB - 1]);
    printf(" %d\n", part[3 * MIB]);
    return 0;
}

static int every_second_page(void)
{
    char *start = map_filled(8 * MIB);
    int failed = 0;
    for (size_t at = 0; at < 8 * MIB; at += 2 * PAGE)
        failed |= mprotect(start + at, PAGE, PROT_READ);
    printf("failed %d, %d, odd %s", failed, start[5 * MIB], store(start + PAGE));
    printf(", even %s\n", store(start + 2 * PAGE));
    return 0;
}

static int executable_part(void)
{
    static const unsigned char code[] = {0xb8, 42, 0, 0, 0, 0xc3}; /* mov $42, %eax; ret */
    char *start = map_filled(8 * MIB);
    memcpy(start + PAGE, code, sizeof code);
    printf("mprotect %s", outcome(mprotect(start + PAGE, PAGE, PROT_READ | PROT_EXEC)));
    printf(", call %d\n", ((int (*)(void))(start + PAGE))());
    return 0;
}

static int protection_keys(void)
{
    char *start = map_filled(8 * MIB);
    long raw = syscall(SYS_pkey_mprotect, start + PAGE, PAGE, PROT_READ, -1);
    printf("raw %s", outcome(raw));
    printf(", libc %s", outcome(pkey_mprotect(start + 2 * PAGE, PAGE, PROT_READ, -1)));
    printf(": %s %s %s\n", store(start + PAGE), store(start + 2 * PAGE), store(start + 3 * PAGE));
    int key = pkey_alloc(0, PKEY_DISABLE_WRITE);
    if (key >= 0) {
        printf("key %s", outcome(pkey_mprotect(start + SUPERPAGE, PAGE, READ_WRITE, key)));
        printf(": %s, next %s\n", store(start + SUPERPAGE), store(start + SUPERPAGE + PAGE));
    }
    return 0;
}

static int unmap_part(void)
{
    char *start = map_filled(8 * MIB);
    printf("munmap %s:", outcome(munmap(start + PAGE, PAGE)));
    printf(" %s %s %s\n", load(start), load(start + PAGE), load(start + 2 * PAGE));
    return 0;
}

/* System calls made without libc's functions, then libc's on the same memory. */
static int raw_system_calls(void)
{
    char *start = map_filled(16 * MIB);
    printf("munmap %s", outcome(syscall(SYS_munmap, start + PAGE, PAGE)));
    printf(", mprotect %s", outcome(syscall(SYS_mprotect, start + 3 * MIB, PAGE, PROT_NONE)));
    printf(", madvise %s\n",
           outcome(syscall(SYS_madvise, start + 5 * MIB, PAGE, MADV_DONTNEED)));
    void *over = (void *)syscall(SYS_mmap, start + 7 * MIB, PAGE, PROT_READ,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    printf("mmap over a part %s", mapped(over));
    char *moved = (void *)syscall(SYS_mremap, start + 8 * MIB, MIB, 2 * MIB, MREMAP_MAYMOVE);
    printf(", mremap %s\n", mapped(moved));
    if (moved != MAP_FAILED)
        printf("moved %d, grown %d, left behind %s\n", moved[0], moved[MIB], load(start + 8 * MIB));
    printf("%s %s %s", load(start), load(start + PAGE), load(start + 2 * PAGE));
    printf(", %s %s", load(start + 3 * MIB), load(start + 3 * MIB + PAGE));
    printf(", %s %s", load(start + 5 * MIB), load(start + 5 * MIB + PAGE));
    printf(", %s %s\n", store(start + 7 * MIB), load(start + 9 * MIB));
    printf("mprotect of the rest %s", outcome(mprotect(start + 10 * MIB, PAGE, PROT_NONE)));
    printf(", munmap %s\n", outcome(munmap(start, 16 * MIB)));
    char *next = map(16 * MIB);
    printf("fresh %s, %d\n", load(next + 3 * MIB), churn());
    return 0;
}

/* Calls about whole mappings, when there is no descriptor left. */
static int whole_without_descriptors(void)
{
    char *one = map_filled(8 * MIB), *other = map_filled(8 * MIB);
    struct rlimit none = {0, 0};
    printf("limit %s", outcome(setrlimit(RLIMIT_NOFILE, &none)));
    printf(", protected %s", outcome(mprotect(one, 8 * MIB, PROT_READ)));
    printf(", reads %s, writes %s", load(one + MIB), store(one + MIB));
    printf(", unmapped %s %s\n", outcome(munmap(one, 8 * MIB)), outcome(munmap(other, 8 * MIB)));
    return 0;
}

/* A write barrier, whose handler protects a page from an alternate stack that is small (SIGSTKSZ was 8 KiB). */
static struct {
    char below[16384], stack[32768];
} alternate;

static void on_barrier(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)context;
    uintptr_t page = (uintptr_t)info->si_addr & ~(PAGE - 1);
    if (mprotect((void *)page, PAGE, READ_WRITE))
        _exit(4);
}

static int barriers_on_a_small_stack(void)
{
    /* What the kernel saves of this processor's registers comes on top. */
    size_t saved = getauxval(AT_MINSIGSTKSZ), size = saved > 3072 ? saved + 5120 : 8192;
    stack_t given = {.ss_sp = alternate.stack, .ss_size = size};
    struct sigaction action = {.sa_sigaction = on_barrier, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    memset(alternate.below, 5, sizeof alternate.below);
    printf("stack %s", outcome(size <= sizeof alternate.stack ? sigaltstack(&given, 0) : 0));
    printf(", handler %s\n", outcome(sigaction(SIGSEGV, &action, 0)));
    char *start = map_filled(8 * MIB);
    printf("protected %s\n", outcome(mprotect(start, 8 * MIB, PROT_READ)));
    for (size_t at = 12345; at < 8 * MIB; at += MIB)
        start[at] = 2;
    size_t changed = 0;
    for (size_t at = 0; at < sizeof alternate.below; at++)
        changed += alternate.below[at] != 5;
    printf("%d %d, changed below the stack %zu\n", start[12345], start[5 * MIB + 12345], changed);
    return 0;
}

static int forks_left = 2;

static void *fork_often(void *nothing)
{
    for (int i = 0; i < 150; i++) {
        pid_t child = fork();
        if (!child)
            _exit(0);
        waitpid(child, 0, 0);
    }
    __sync_fetch_and_sub(&forks_left, 1);
    return nothing;
}

/* Memory that may not be read stays so while other threads fork. */
static int guards_while_others_fork(void)
{
    pthread_t threads[2];
    int worked = 0;
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], 0, fork_often, 0);
    while (__atomic_load_n(&forks_left, __ATOMIC_RELAXED)) {
        char *start = map_filled(6 * MIB);
        mprotect(start, 5 * MIB, PROT_NONE);
        for (size_t at = 0; at < 5 * MIB; at += 64 * PAGE)
            worked += strcmp(load(start + at), "SIGSEGV") != 0;
        munmap(start, 6 * MIB);
    }
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], 0);
    printf("loads that worked: %d\n", worked);
    return worked != 0;
}

/* A page is protected by the program's own syscall instruction, which nobody can see, and a child has the memory. */
static int raw_protection_and_fork(void)
{
    char *start = map_filled(8 * MIB);
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(SYS_mprotect), "D"(start), "S"(PAGE), "d"(PROT_READ)
                     : "rcx", "r11", "memory");
    pid_t child = fork();
    if (!child)
        _exit(start[0] != 7 || start[PAGE] != 7 || start[7 * MIB] != 7);
    printf("protect %ld, ", result);
    return !ended_well("child", child) || strcmp(store(start), "SIGSEGV") || strcmp(store(start + PAGE), "written");
}

MAIN(CASE(raw_protection_and_fork), CASE(guards_while_others_fork), CASE(discard_over_a_guard), CASE(discard_from_a_guard), CASE(discard_over_a_readonly_page),
     CASE(discard_part), CASE(every_second_page), CASE(executable_part), CASE(protection_keys),
     CASE(unmap_part), CASE(raw_system_calls), CASE(barriers_on_a_small_stack),
     CASE(whole_without_descriptors))
