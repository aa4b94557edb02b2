/* Where mappings go and what mmap refuses. On base pages memory that was unmapped is gone, its place
 * is free for MAP_FIXED_NOREPLACE, and wrong arguments get the error that the manual names. */
#include "common.h"

static void unmap_and_map_again(const char *what, size_t length)
{
    char *start = memset(map(length), 1, length);
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    printf("%s: munmap %s", what, outcome(munmap(start, length)));
    printf(", then %s", load(start));
    char *again = mmap(start, length, READ_WRITE, flags, -1, 0);
    printf(", mapped there %s %s\n", mapped(again), again == start ? "there" : "elsewhere");
}

static int the_place_of_what_was_unmapped(void)
{
    for (int i = 0; i < 12; i++)
        memset(map(MIB), 1, MIB);
    unmap_and_map_again("small", MIB);
    unmap_and_map_again("large", 4 * MIB);
    char *start = memset(map(MIB), 1, MIB);
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    printf("replaced %s", mapped(mmap(start, MIB, READ_WRITE, flags, -1, 0)));
    printf(" %s", load(start));
    munmap(start + PAGE, MIB - PAGE);
    printf(", all but a page unmapped: %s %s\n", load(start), load(start + 2 * PAGE));
    return 0;
}

static const char *try_map(size_t length, int flags, int fd, off_t offset, size_t hint)
{
    return mapped(mmap((void *)hint, length, READ_WRITE, flags, fd, offset));
}

static int wrong_arguments(void)
{
    int private = MAP_PRIVATE | MAP_ANONYMOUS;
    printf("no length %s", try_map(0, private, -1, 0, 0));
    printf(", all of memory %s", try_map(SIZE_MAX, private, -1, 0, 0));
    printf(", too much %s", try_map(1ul << 47, private, -1, 0, 0));
    printf(", neither private nor shared %s", try_map(4 * MIB, MAP_ANONYMOUS, -1, 0, 0));
    printf(", odd offset %s", try_map(4 * MIB, private, -1, 1, 0));
    printf(", offset %s", try_map(4 * MIB, private, -1, PAGE, 0));
    printf(", odd place %s", try_map(4 * MIB, private | MAP_FIXED, -1, 0, 1));
    printf(", a file's number %s\n", try_map(4 * MIB, private, 99, 0, 0));
    printf("munmap of nothing %s", outcome(munmap((void *)0x10000, 0)));
    printf(", odd %s", outcome(munmap((void *)0x10001, PAGE)));
    printf(", mremap %s", mapped(mremap((void *)0x123000, PAGE, 2 * PAGE, MREMAP_MAYMOVE)));
    printf(", mprotect %s", outcome(mprotect((void *)0x123000, PAGE, PROT_READ)));
    printf(", madvise %s\n", outcome(madvise((void *)0x123000, PAGE, MADV_DONTNEED)));
    return 0;
}

static int kinds_of_mappings(void)
{
    static unsigned char resident[2048];
    int private = MAP_PRIVATE | MAP_ANONYMOUS, pages = 0;
    char *low = mmap(0, 8 * MIB, READ_WRITE, private | MAP_32BIT, -1, 0);
    printf("below 4 GiB: %d", low != MAP_FAILED && !((uintptr_t)low >> 32));
    char *populated = mmap(0, 8 * MIB, READ_WRITE, private | MAP_POPULATE, -1, 0);
    mincore(populated, 8 * MIB, resident);
    for (int i = 0; i < 2048; i++)
        pages += resident[i] & 1;
    printf(", populated %d pages", pages);
    printf(", not reserved %s", store(mmap(0, 8 * MIB, READ_WRITE, private | MAP_NORESERVE, -1, 0)));
    printf(", locked %s\n", store(mmap(0, 8 * MIB, READ_WRITE, private | MAP_LOCKED, -1, 0)));
    char *end = sbrk(16 * MIB);
    printf("sbrk %s", end == (void *)-1 ? "fails" : store(end + 15 * MIB));
    printf(", back %s\n", sbrk(-16 * (long)MIB) == (void *)-1 ? "fails" : "ok");
    return 0;
}

/* Blocks that are aligned by giving back what is before and behind, as Ruby has its heap pages: the kernel packs them. */
static int trimmed_to_alignment(void)
{
    const size_t size = 64 << 10;
    for (int i = 0; i < 4000; i++) {
        char *start = map(2 * size);
        char *aligned = (char *)(((uintptr_t)start + size - 1) & ~(size - 1));
        if (aligned > start)
            munmap(start, aligned - start);
        if (aligned < start + size)
            munmap(aligned + size, start + size - aligned);
        aligned[0] = 1;
    }
    int mappings = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    for (int c; (c = getc(maps)) != EOF;)
        mappings += c == '\n';
    printf("%s mappings\n", mappings < 1500 ? "few" : "many");
    return 0;
}

MAIN(CASE(trimmed_to_alignment), CASE(the_place_of_what_was_unmapped), CASE(wrong_arguments), CASE(kinds_of_mappings))
