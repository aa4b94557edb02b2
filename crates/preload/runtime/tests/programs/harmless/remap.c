/* mremap of wholes and parts. On base pages contents move with the memory, new memory is zero, and
 * a call that fails changes nothing. */
#include "common.h"
#include <sys/uio.h>

static int grow(void)
{
    char *start = map_filled(8 * MIB), *grown = mremap(start, 8 * MIB, 32 * MIB, MREMAP_MAYMOVE);
    printf("%s", mapped(grown));
    if (grown != MAP_FAILED)
        printf(" %d %d %d", grown[0], grown[8 * MIB - 1], grown[8 * MIB]);
    printf("\n");
    return 0;
}

static int grow_from_the_middle(void)
{
    char *start = map_filled(8 * MIB);
    char *grown = mremap(start + PAGE, 3 * MIB, 5 * MIB, MREMAP_MAYMOVE);
    printf("%s", mapped(grown));
    if (grown != MAP_FAILED)
        printf(" %d %d", grown[0], grown[3 * MIB]);
    printf(", old %s %s\n", load(start), load(start + 4 * MIB));
    return 0;
}

static int to_a_place(void)
{
    char *start = map_filled(8 * MIB), *target = map(64 * MIB);
    char *moved =
        mremap(start, 8 * MIB, 8 * MIB, MREMAP_MAYMOVE | MREMAP_FIXED, target + PAGE);
    printf("%s", mapped(moved));
    if (moved != MAP_FAILED)
        printf(" %d %d", moved[0], moved[8 * MIB - 1]);
    printf(", target %s\n", load(target));
    return 0;
}

static int and_keep_the_old(void)
{
    char *start = map_filled(8 * MIB);
    char *moved = mremap(start, 8 * MIB, 8 * MIB, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, 0);
    printf("%s", mapped(moved));
    if (moved != MAP_FAILED)
        printf(" new %d old %d", moved[0], start[0]);
    printf("\n");
    return 0;
}

static int shrink(void)
{
    char *start = map_filled(8 * MIB);
    printf("%s", mapped(mremap(start, 8 * MIB, 12345, 0)));
    printf(" %s %s\n", load(start), load(start + 4 * PAGE));
    return 0;
}

/* A piece was replaced by memory like it: the kernel made one mapping of both. */
static int over_a_renewed_piece(void)
{
    char *start = map(8 * MIB);
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    start[0] = 1;
    printf("renew %s", mapped(mmap(start + SUPERPAGE, MIB, READ_WRITE, flags, -1, 0)));
    char *moved = mremap(start, 8 * MIB, 16 * MIB, MREMAP_MAYMOVE);
    printf(", mremap %s", mapped(moved));
    if (moved != MAP_FAILED)
        printf(" %d", moved[0]);
    printf("\n");
    return 0;
}

/* Pieces that are renewed otherwise, and alike in the end. */
static int over_pieces_that_became_alike(void)
{
    enum { GUARD_INSTALL = 102 }; /* linux/mman.h; not before Linux 6.13 */
    static const char *names[] = {"executable and read", "populated", "guarded"};
    for (int how = 0; how < 3; how++) {
        size_t length = how == 0 ? 4 * MIB : 16 * PAGE;
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
        char *start = map(length), *piece = start + PAGE;
        start[0] = 1;
        if (how == 0) {
            munmap(piece, length - PAGE);
            mmap(piece, length - PAGE, PROT_READ | PROT_EXEC, flags, -1, 0);
            load(piece + SUPERPAGE);
            mprotect(start, length, READ_WRITE);
        } else if (how == 1) {
            mmap(start, length, READ_WRITE, flags, -1, 0);
            start[0] = start[8 * PAGE] = 1;
            mmap(piece, 2 * PAGE, READ_WRITE, flags | MAP_POPULATE, -1, 0);
        } else {
            mmap(piece, length - PAGE, READ_WRITE, flags, -1, 0);
            madvise(start + 12 * PAGE, PAGE, GUARD_INSTALL);
        }
        char *moved = mremap(start, 4 * PAGE, length, MREMAP_MAYMOVE);
        printf("%s: mremap %s", names[how], mapped(moved));
        if (moved != MAP_FAILED)
            printf(" %d %d", moved[0], moved[PAGE]);
        printf("\n");
    }
    return 0;
}

static int readable_pages(char *start, size_t pages)
{
    int sum = 0;
    for (size_t i = 0; i < pages; i++) {
        char byte;
        struct iovec local = {&byte, 1}, remote = {start + i * PAGE, 1};
        sum += process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == 1;
    }
    return sum;
}

/* Of 2,048 pages, those from the 226th on get a protection; then a part is moved. */
static void move_protected_part(int protection, size_t from, size_t count, size_t to)
{
    char *start = map_filled(2048 * PAGE), *part = start + from * PAGE;
    mprotect(start + 225 * PAGE, 1823 * PAGE, protection);
    char *moved = mremap(part, count * PAGE, to * PAGE, MREMAP_MAYMOVE);
    printf("protection %d, %zu + %zu -> %zu pages: %s", protection, from, count, to, mapped(moved));
    printf(", %d readable", readable_pages(moved == MAP_FAILED ? part : moved, count));
    if (moved != MAP_FAILED && protection & PROT_READ) {
        int lost = 0;
        for (size_t i = 0; i < count; i++)
            lost += moved[i * PAGE] != 7;
        printf(", %d lost", lost);
    }
    printf("\n");
    munmap(start, 2048 * PAGE);
}

static int protected_parts(void)
{
    move_protected_part(PROT_NONE, 312, 360, 642);
    move_protected_part(PROT_READ, 312, 360, 642);
    move_protected_part(READ_WRITE, 312, 360, 642);
    move_protected_part(PROT_NONE, 512, 512, 1100);
    move_protected_part(PROT_NONE, 1400, 100, 300);
    move_protected_part(READ_WRITE, 1400, 100, 300);
    move_protected_part(READ_WRITE, 0, 2048, 3000);
    return 0;
}

/* With no length at all shared memory is mapped a second time, and private memory is not. */
static int map_again(void)
{
    char *private = map_filled(8 * MIB), *shared = map_shared(8 * MIB);
    printf("private %s", mapped(mremap(private + SUPERPAGE, 0, SUPERPAGE, MREMAP_MAYMOVE)));
    char *again = mremap(shared + SUPERPAGE, 0, SUPERPAGE, MREMAP_MAYMOVE);
    printf(", shared %s", mapped(again));
    shared[SUPERPAGE + 5] = 9;
    printf(", %d\n", again == MAP_FAILED ? 9 : again[5]);
    return 0;
}

MAIN(CASE(map_again), CASE(grow), CASE(grow_from_the_middle), CASE(to_a_place), CASE(and_keep_the_old), CASE(shrink),
     CASE(over_a_renewed_piece), CASE(over_pieces_that_became_alike), CASE(protected_parts))
