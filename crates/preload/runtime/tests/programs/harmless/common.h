/* Shared by the programs of this directory. Each program holds a few cases and is called with the
 * name of one. It prints what happened and nothing that changes from run to run, so that its output
 * on base pages and on superpages can be compared line by line. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (1ul << 20)
#define SUPERPAGE (2 * MIB)
#define PAGE 4096ul
#define READ_WRITE (PROT_READ | PROT_WRITE)
#define HELPER static __attribute__((unused))

/* The exit status of a case that this machine cannot run; what it printed is the reason. */
#define SKIPPED 77

struct named_case {
    const char *name;
    int (*run)(void);
};
#define CASE(function) {#function, function}
#define MAIN(...)                                                                                  \
    int main(int count, char **arguments)                                                          \
    {                                                                                              \
        static const struct named_case cases[] = {__VA_ARGS__};                                    \
        setvbuf(stdout, 0, _IONBF, 0);                                                             \
        for (size_t i = 0; count > 1 && i < sizeof cases / sizeof *cases; i++)                     \
            if (!strcmp(arguments[1], cases[i].name))                                              \
                return cases[i].run();                                                             \
        printf("no such case\n");                                                                  \
        return 2;                                                                                  \
    }

/* The name of errno after a call that returned `result`. */
HELPER const char *outcome(long result)
{
    return result == -1 ? strerrorname_np(errno) : result ? "other" : "ok";
}

HELPER const char *mapped(void *address)
{
    return address == MAP_FAILED ? strerrorname_np(errno) : "ok";
}

HELPER char *map_as(size_t length, int flags)
{
    char *start = mmap(0, length, READ_WRITE, flags | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) {
        printf("mmap of %zu bytes: %s\n", length, strerrorname_np(errno));
        _exit(3);
    }
    return start;
}

HELPER char *map(size_t length)
{
    return map_as(length, MAP_PRIVATE);
}

/* Private memory of sevens. */
HELPER char *map_filled(size_t length)
{
    return memset(map(length), 7, length);
}

/* The same, at a multiple of a superpage. */
HELPER char *map_aligned(size_t length)
{
    char *start = map(length + SUPERPAGE);
    start = (char *)(((uintptr_t)start + SUPERPAGE - 1) & ~(SUPERPAGE - 1));
    return memset(start, 7, length);
}

HELPER char *map_shared(size_t length)
{
    return memset(map_as(length, MAP_SHARED), 7, length);
}

static sigjmp_buf after_fault;
HELPER void fault(int number)
{
    siglongjmp(after_fault, number);
}

/* Reads or writes one byte: what came of it. */
HELPER const char *touch(volatile char *address, int writes)
{
    struct sigaction action = {.sa_handler = fault}, segv, bus;
    const char *result;
    int number;
    sigaction(SIGSEGV, &action, &segv);
    sigaction(SIGBUS, &action, &bus);
    if ((number = sigsetjmp(after_fault, 1)))
        result = number == SIGSEGV ? "SIGSEGV" : "SIGBUS";
    else if (writes)
        *address = 1, result = "written";
    else
        result = *address ? "set" : "zero";
    sigaction(SIGSEGV, &segv, 0);
    sigaction(SIGBUS, &bus, 0);
    return result;
}

HELPER const char *load(char *address)
{
    return touch(address, 0);
}

HELPER const char *store(char *address)
{
    return touch(address, 1);
}

/* Allocates, maps and gives back in parts; 0 if all of it could be had. */
HELPER int churn(void)
{
    for (int i = 0; i < 100; i++) {
        size_t size = i % 5 == 0 ? 9000000 : i % 3 ? 100 * i + 1 : 300000;
        char *memory = malloc(size);
        if (!memory)
            return 5;
        memset(memory, 1, size < 65536 ? size : 65536);
        if (i % 2)
            memory = realloc(memory, size * 2);
        free(memory);
        char *start = mmap(0, 6 * MIB, READ_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (start == MAP_FAILED)
            return 6;
        start[0] = 1;
        if (munmap(start + PAGE, PAGE) || munmap(start, PAGE)
            || munmap(start + 2 * PAGE, 6 * MIB - 2 * PAGE))
            return 7;
    }
    return 0;
}

/* What a program has done before it limits itself: memory was used and given back. */
HELPER void use_memory(void)
{
    free(memset(malloc(10 * MIB), 1, 10 * MIB));
    memset(malloc(10 * MIB), 1, 10 * MIB);
    char *start = map(64 * MIB);
    memset(start, 1, 8 * MIB);
    munmap(start, 64 * MIB);
    usleep(50000);
}

/* Waits for a child and prints how it ended; whether it ended well. */
HELPER int ended_well(const char *what, pid_t child)
{
    int status = -1;
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status))
        printf("%s: signal %d\n", what, WTERMSIG(status));
    else
        printf("%s: exit %d\n", what, WEXITSTATUS(status));
    return status == 0;
}

/* A field of /proc/self/status in KiB; -1: there is none. */
HELPER long status_kib(const char *field)
{
    char line[256];
    long kib = -1;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, field, strlen(field)))
            kib = atol(line + strlen(field) + 1);
    if (file)
        fclose(file);
    return kib;
}

/* Of the mapping that holds `address`, the KiB on superpages of either kind. */
HELPER long superpage_kib(const void *address)
{
    char line[512], name[64];
    unsigned long start, end, kib, sum = 0;
    int inside = 0;
    FILE *file = fopen("/proc/self/smaps", "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
            inside = start <= (uintptr_t)address && (uintptr_t)address < end;
        else if (inside && sscanf(line, "%63[^:]: %lu", name, &kib) == 2
                 && (!strcmp(name, "AnonHugePages") || !strcmp(name, "Private_Hugetlb")
                     || !strcmp(name, "Shared_Hugetlb")))
            sum += kib;
    if (file)
        fclose(file);
    return sum;
}
