/* A program with much text, data and bss, which checks that all of it is right and prints how much
 * of each lies on superpages, in KiB. Built as it is, and with its segments aligned or not. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* 2000 functions of 3.4 KiB: 6.6 MiB of text. */
#define ONE(n) \
    __attribute__((noinline)) long f##n(long x) { \
        __asm__ volatile(".rept 3400 / NOP; nop; .endr"); \
        return x * 31 + n; \
    }
#define TEN(n) ONE(n##0) ONE(n##1) ONE(n##2) ONE(n##3) ONE(n##4) ONE(n##5) ONE(n##6) ONE(n##7) ONE(n##8) ONE(n##9)
#define HUNDRED(n) TEN(n##0) TEN(n##1) TEN(n##2) TEN(n##3) TEN(n##4) TEN(n##5) TEN(n##6) TEN(n##7) TEN(n##8) TEN(n##9)
#define THOUSAND(n) HUNDRED(n##0) HUNDRED(n##1) HUNDRED(n##2) HUNDRED(n##3) HUNDRED(n##4) HUNDRED(n##5) HUNDRED(n##6) HUNDRED(n##7) HUNDRED(n##8) HUNDRED(n##9)
#if defined(__x86_64__)
__asm__(".set NOP, 1");
#else
__asm__(".set NOP, 4");
#endif
THOUSAND(1)
THOUSAND(2)
#undef ONE
#define ONE(n) f##n,
static long (*const table[])(long) = {THOUSAND(1) THOUSAND(2)};

#define MIB (1l << 20)
static char bss[64 * MIB];
static struct {
    char bytes[10 * MIB];
    long (*function)(long);
    char *pointer;
    int number;
} data = {{1, 2, 3}, f1500, &bss[12345], 42};
static __thread int of_thread = 7;

/* Of what is mapped at [from, to), the sum of the smaps fields that mean superpages, or of the one
 * that means pages of the pool. */
static int only_pool;
static long huge(const void *from, const void *to)
{
    static const char *fields[] = {"Private_Hugetlb", "AnonHugePages", "FilePmdMapped", "ShmemPmdMapped"};
    FILE *file = fopen("/proc/self/smaps", "r");
    char line[4096], name[64];
    unsigned long start, end, kib, sum = 0;
    int inside = 0;
    if (!file)
        abort();
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
            inside = start < (unsigned long)to && end > (unsigned long)from;
        else if (inside && sscanf(line, "%63[^:]: %lu", name, &kib) == 2)
            for (int i = 0; i < (only_pool ? 1 : 4); i++)
                if (!strcmp(name, fields[i]))
                    sum += kib;
    }
    fclose(file);
    return sum;
}

/* How much of [from, to) is no file's any more, in KiB, and in how many mappings it lies. */
static long anonymous(const void *from, const void *to, int *mappings)
{
    FILE *file = fopen("/proc/self/smaps", "r");
    char line[4096];
    unsigned long start, end, kib, sum = 0;
    int inside = 0;
    if (!file)
        abort();
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
            *mappings += inside = start < (unsigned long)to && end > (unsigned long)from;
        else if (inside && sscanf(line, "Anonymous: %lu", &kib) == 1)
            sum += kib;
    }
    fclose(file);
    return sum;
}

#define CHECK(what) do { if (!(what)) { printf("wrong: %s\n", #what); fflush(stdout); _exit(1); } } while (0)

static jmp_buf back;
static void handler(int number)
{
    longjmp(back, number);
}

int main(int count, char **arguments)
{
    only_pool = count > 1 && !strcmp(arguments[1], "pool");
    long x = 1, expected = 1;
    int calls = sizeof table / sizeof *table;
    for (int i = 0; i < 50 * calls; i++)
        x = table[i % calls](x);
    for (int i = 0; i < 50 * calls; i++)
        expected = expected * 31 + 1000 + i % calls;
    CHECK(x == expected);
    CHECK(data.bytes[2] == 3 && data.bytes[5 * MIB] == 0 && data.number == 42);
    CHECK(data.function == f1500 && data.pointer == &bss[12345] && of_thread == 7);
    for (long i = 0; i < sizeof bss; i += 512)
        CHECK(bss[i] == 0);
    memset(bss, 9, sizeof bss);
    data.bytes[5 * MIB] = 4;
    of_thread = 8;

    /* A copy relocation without PIE, and another library's data with it. */
    fprintf(stdout, "checked\n");
    signal(SIGSEGV, handler);
    if (setjmp(back) == 0)
        *(volatile char *)(count > 100 ? bss : 0) = 1;
    void *library = dlopen("libm.so.6", RTLD_NOW);
    CHECK(library && ((double (*)(double))dlsym(library, "sqrt"))(49) == 7);
    dlclose(library);

    /* The heap behind bss is intact and grows. */
    char *before = sbrk(0), *block = sbrk(3 * MIB);
    CHECK(block == before && block >= bss + sizeof bss);
    memset(block, 1, 3 * MIB);
    char *small[100];
    for (int i = 0; i < 100; i++)
        memset(small[i] = malloc(10000), i, 10000);
    for (int i = 0; i < 100; i++)
        CHECK(small[i][9999] == i);

    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        CHECK(bss[MIB] == 9 && data.bytes[5 * MIB] == 4 && table[7](1) == 31 + 1007);
        memset(bss, 5, sizeof bss);
        _exit(3);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 3);
    CHECK(bss[MIB] == 9);

    long text = huge(table[0], table[calls - 1]), kib = huge(bss, bss + sizeof bss);
    long all = huge(&data, &data + 1);
    /* Data and bss may have become one mapping. */
    int mappings = 0;
    long copied = anonymous(table[0], table[calls - 1], &mappings);
    printf("text %ld bss %ld data %ld copied %ld mappings %d\n", text, kib, all, copied, mappings);

    /* Parts of it, protected differently and given back. */
    if (count > 1 && !strcmp(arguments[1], "parts")) {
        char *part = bss + 20 * MIB + 4096;
        part -= (unsigned long)part % 4096;
        CHECK(!mprotect(part, 4096, PROT_READ));
        CHECK(part[0] == 9 && part[4095] == 9 && part[4096] == 9 && part[-1] == 9);
        CHECK(!mprotect(part, 4096, PROT_READ | PROT_WRITE));
        part[5] = 1;
        CHECK(!madvise(part + 8 * MIB, 8192, MADV_DONTNEED));
        CHECK(part[8 * MIB] == 0 && part[8 * MIB + 8192] == 9 && part[8 * MIB - 1] == 9);
        char *code = (char *)table[1000];
        code -= (unsigned long)code % 4096;
        CHECK(!mprotect(code, 4096, PROT_READ | PROT_WRITE | PROT_EXEC));
        code[0] = code[0];
        CHECK(!mprotect(code, 4096, PROT_READ | PROT_EXEC));
        for (int i = 0; i < calls; i++)
            expected = expected * 31 + 1000 + i, x = table[i](x);
        CHECK(x == expected);
    }
    return 0;
}
