// Fragments the machine's free memory: one page that cannot be moved in each free 2 MiB, until no
// more of them are had. `fragment KEEP_MIB`
//
// What is free is made contiguous first. Only KEEP_MIB of memory stay free, and are fragmented; the
// other free blocks are taken as surplus pages of the hugetlb pool, which costs microseconds each.
// Needs root, and the lock that everybody holds who changes the pool: the overcommit limit is raised
// while pages are taken. (`superpage bench frag` changes no setting, and takes longer.)
//
// A superpage is faulted, split (MADV_COLD on a part splits it), one of its pages is spliced into a
// pipe, whose reference keeps compaction from moving it, and the other 511 are given back. So
// hardly more memory is in use at any time than the pages that stay. Prints `blocks N pinned N`
// when done and keeps them until standard input ends; however the process ends, the kernel then
// frees all of them.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <unistd.h>

enum { PAGE = 4096, ORDER = 9, CHUNK = 64, MISSES = 16 };
static const long SUPERPAGE = 2 << 20;

// Free blocks of 2 MiB, larger ones counted as several; *free_mib: all that is free.
static long blocks(long *free_mib)
{
    FILE *file = fopen("/proc/buddyinfo", "r");
    char line[1024];
    long sum = 0, pages = 0;
    while (file && fgets(line, sizeof line, file)) {
        char *at = strstr(line, "zone"), *end;
        if (!at) continue;
        at += 4 + strspn(at + 4, " ");
        int is_lowest = !strncmp(at, "DMA ", 4); // 16 MiB on x86, kept for devices
        at += strcspn(at, " ");
        for (int order = 0;; order++) {
            long count = strtol(at, &end, 10);
            if (end == at) break;
            pages += count << order;
            if (order >= ORDER && !is_lowest) sum += count << (order - ORDER);
            at = end;
        }
    }
    if (file) fclose(file);
    if (free_mib) *free_mib = pages >> 8;
    return sum;
}

static const char OVERCOMMIT[] = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_overcommit_hugepages";

static long overcommit(long set)
{
    long value = 0;
    FILE *file = fopen(OVERCOMMIT, set < 0 ? "r" : "w");
    if (!file) return -1;
    if (set < 0) { if (fscanf(file, "%ld", &value) != 1) value = -1; }
    else fprintf(file, "%ld", set);
    fclose(file);
    return value;
}

// 21: the size, as in MAP_HUGE_2MB.
static const int POOL = MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | 21 << 26;

// What is free comes together: what was compacted for the pool lies free when it is given back.
static void gather(long count)
{
    enum { MOST = 1024 };
    void *taken[MOST];
    long before = overcommit(-1), steps = 0, short_of = 0;
    if (before < 0) return;
    overcommit(before + count);
    for (; steps < MOST && steps * CHUNK < count && short_of < 16; short_of++) {
        void *at = mmap(0, CHUNK * SUPERPAGE, PROT_READ, POOL, -1, 0);
        if (at == MAP_FAILED) continue;
        taken[steps++] = at;
        short_of = -1;
    }
    overcommit(before);
    while (steps > 0) munmap(taken[--steps], CHUNK * SUPERPAGE);
}

// Takes free blocks out of everybody's reach, until the process ends.
static void occupy(long count)
{
    long before = overcommit(-1);
    if (before < 0) return;
    overcommit(before + count);
    while (count > 0 && mmap(0, count * SUPERPAGE, PROT_READ, POOL, -1, 0) == MAP_FAILED) count -= count / 16 + 1;
    overcommit(before);
}

static int pipe_end = -1, slots;

static int pin(char *page)
{
    if (slots == 0) {
        int ends[2];
        if (pipe2(ends, O_CLOEXEC | O_NONBLOCK)) return -1;
        slots = fcntl(ends[1], F_SETPIPE_SZ, 256 * PAGE) / PAGE;
        if (slots <= 0) slots = 16;
        pipe_end = ends[1];
    }
    struct iovec one = { page, PAGE };
    if (vmsplice(pipe_end, &one, 1, SPLICE_F_NONBLOCK) != PAGE) return -1;
    slots--;
    return 0;
}

// Whether the touch of one page brought all of them.
static int is_superpage(char *at)
{
    unsigned char last = 0;
    return mincore(at + SUPERPAGE - PAGE, PAGE, &last) == 0 && last & 1;
}

int main(int count, char **arguments)
{
    long keep = count > 1 ? atol(arguments[1]) : 8192;
    struct rlimit files = { 4096, 4096 };
    setrlimit(RLIMIT_NOFILE, &files);
    long pinned = 0, misses = 0, free_mib, excess;
    blocks(&free_mib);
    gather((free_mib - 1024) / 2);
    excess = blocks(&free_mib) - keep / 2;
    if (free_mib / 2 - keep / 2 < excess) excess = free_mib / 2 - keep / 2;
    if (excess > 0) occupy(excess);
    // Until none is had, also not of those in the lists of CPUs, which /proc/buddyinfo does not show.
    while (blocks(&free_mib), free_mib > 1024 && misses < MISSES) {
        size_t length = CHUNK * SUPERPAGE;
        char *raw = mmap(0, length + SUPERPAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (raw == MAP_FAILED) break;
        char *start = (char *)(((size_t)raw + SUPERPAGE - 1) & -SUPERPAGE);
        madvise(start, length, MADV_HUGEPAGE);
        for (int i = 0; i < CHUNK && misses < MISSES; i++) {
            char *at = start + i * SUPERPAGE;
            *at = 1;
            if (!is_superpage(at)) {
                misses++;
                madvise(at, SUPERPAGE, MADV_DONTNEED);
                continue;
            }
            misses = 0;
            madvise(at, PAGE, MADV_COLD);
            // Before the pin: a superpage that is referenced cannot be split.
            if (pin(at)) { perror("vmsplice"); return 1; }
            madvise(at + PAGE, SUPERPAGE - PAGE, MADV_DONTNEED);
            pinned++;
        }
    }
    printf("blocks %ld pinned %ld free_mib %ld\n", blocks(&free_mib), pinned, free_mib);
    fflush(stdout);
    char byte;
    while (read(0, &byte, 1) > 0) {}
    return 0;
}
