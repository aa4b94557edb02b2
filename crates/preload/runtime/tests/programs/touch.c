// Maps memory in pieces, fills it in order, updates words at random, and says what that took:
// `touch PIECE_MIB COUNT UPDATES [advised|remapped|ahead|sealed]`. `advised`: it asks for
// superpages itself; `remapped`: the pieces are moved by mremap as a whole and read back; `ahead`:
// all are mapped before any is touched; `sealed`: it gives up gaining privileges first, as before a
// seccomp filter. Prints `fill_us N update_us N stalls N huge_faults N fallbacks N huge_kib N`; the
// counters are the machine's.
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>

static long counter(const char *path, const char *name)
{
    FILE *file = fopen(path, "r");
    char line[256];
    long value = 0, sum = 0;
    size_t length = strlen(name);
    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, name, length) && (line[length] == ' ' || line[length] == ':')
            && sscanf(line + length + 1, "%ld", &value) == 1) sum += value;
    if (file) fclose(file);
    return sum;
}

static long now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1000000 + at.tv_nsec / 1000;
}

int main(int count, char **arguments)
{
    if (count < 4) return 2;
    size_t piece = strtoul(arguments[1], 0, 10) << 20, pieces = strtoul(arguments[2], 0, 10);
    long updates = atol(arguments[3]);
    const char *mode = count > 4 ? arguments[4] : "";
    if (!strcmp(mode, "sealed")) prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    const char *names[] = { "compact_stall", "thp_fault_alloc", "thp_fault_fallback" };
    long before[3], after[3];
    for (int i = 0; i < 3; i++) before[i] = counter("/proc/vmstat", names[i]);
    uint64_t **at = calloc(pieces, sizeof *at);
    size_t words = piece / 8;
    long start = now();
    for (size_t i = 0, j = 0; i < pieces; i++) {
        at[i] = mmap(0, piece, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at[i] == MAP_FAILED) return 1;
        if (!strcmp(mode, "advised")) madvise(at[i], piece, MADV_HUGEPAGE);
        if (!strcmp(mode, "ahead") && i + 1 < pieces) continue;
        for (; j <= i; j++)
            for (size_t word = 0; word < words; word++) at[j][word] = word;
    }
    for (size_t i = 0; i < pieces && !strcmp(mode, "remapped"); i++) {
        at[i] = mremap(at[i], piece, piece + (2 << 20), MREMAP_MAYMOVE);
        if (at[i] == MAP_FAILED) { perror("mremap"); return 1; }
        for (size_t word = 0; word < words; word++) if (at[i][word] != word) return 1;
    }
    long filled = now();
    uint64_t random = 88172645463325252u;
    for (long i = 0; i < updates; i++) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        uint64_t word = (unsigned __int128)random * (words * pieces) >> 64;
        at[word / words][word % words] ^= random;
    }
    long updated = now();
    for (int i = 0; i < 3; i++) after[i] = counter("/proc/vmstat", names[i]);
    printf("fill_us %ld update_us %ld stalls %ld huge_faults %ld fallbacks %ld huge_kib %ld\n",
        filled - start, updated - filled, after[0] - before[0], after[1] - before[1], after[2] - before[2],
        counter("/proc/self/smaps_rollup", "AnonHugePages"));
    return 0;
}
