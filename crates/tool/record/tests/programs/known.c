/* Accesses that a test knows: 3 rounds over 64 pages at a fixed address, read then written; then a heap,
 * reserved memory made accessible in part, a remapping, and an end by exit code. */
#define _GNU_SOURCE
#include <sys/mman.h>
#include <unistd.h>

#define AT ((char *)0x10000000000)

int main(void) {
    volatile char *page = mmap(AT, 64 << 12, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < 64; i++)
            page[i << 12]++;
    /* Over the edge of a page. */
    *(volatile long *)(page + (5 << 12) - 4) = 1;
    munmap((void *)(page + (32 << 12)), 32 << 12);

    char *reserved = mmap(AT + (1l << 30), 4l << 30, PROT_NONE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    mprotect(reserved, 3 << 20, PROT_READ | PROT_WRITE);
    for (int i = 0; i < 3 << 8; i++)
        ((volatile char *)reserved)[i << 12] = 1;
    madvise(reserved, 2 << 20, MADV_DONTNEED);

    char *moved = mremap(reserved, 1 << 20, 2 << 20, MREMAP_MAYMOVE);
    ((volatile char *)moved)[(2 << 20) - 1] = 1;

    for (int i = 0; i < 40; i++) {
        volatile char *more = sbrk(100 << 10);
        more[0] = more[(100 << 10) - 1] = 1;
    }
    sbrk(-(1 << 20));
    return 9;
}
