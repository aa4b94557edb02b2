/* Shared memory whose parts are protected, committed, unmapped, replaced, emptied and resized, as
 * databases and garbage collectors do. On base pages each call does what it says, to that part. */
#include "common.h"
#include <sys/shm.h>

/* Reserved as a whole, committed in parts. */
static int commit_parts(void)
{
    char *start = map_shared(8 * MIB);
    printf("reserve %s", outcome(mprotect(start, 8 * MIB, PROT_NONE)));
    printf(", commit %s", outcome(mprotect(start + MIB, 65536, READ_WRITE)));
    printf(": inside %s, outside %s\n", store(start + MIB), store(start + 3 * MIB));
    char *reserved = mmap(0, 8 * MIB, PROT_NONE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    printf("reserved by mmap, commit %s", outcome(mprotect(reserved + MIB, 65536, READ_WRITE)));
    printf(": inside %s, outside %s\n", store(reserved + MIB), store(reserved));
    return 0;
}

static int guard_page(void)
{
    char *start = map_shared(8 * MIB);
    printf("mprotect %s", outcome(mprotect(start + PAGE, PAGE, PROT_NONE)));
    printf(": %s %s %s\n", store(start), store(start + PAGE), store(start + 2 * PAGE));
    return 0;
}

static int unmap_part(void)
{
    char *start = map_shared(8 * MIB);
    printf("munmap %s", outcome(munmap(start + PAGE, PAGE)));
    printf(", %s", outcome(munmap(start + 4 * MIB, 65536)));
    printf(": %s %s %s %s\n", store(start), store(start + PAGE), store(start + 2 * PAGE),
           store(start + 4 * MIB));
    return 0;
}

static int map_over_part(void)
{
    char *start = map_shared(8 * MIB);
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    printf("mmap %s", mapped(mmap(start + PAGE, PAGE, READ_WRITE, flags, -1, 0)));
    printf(", %s", mapped(mmap(start + SUPERPAGE + 65536, 65536, READ_WRITE, flags, -1, 0)));
    printf(": %s %s %s\n", load(start), load(start + PAGE), load(start + SUPERPAGE + 65536));
    return 0;
}

/* Pages of a mapping in another order. */
static int remap_file_pages_of_part(void)
{
    char *start = map_shared(8 * MIB);
    start[0] = 1, start[PAGE] = 2;
    printf("remap_file_pages %s: ", outcome(remap_file_pages(start, PAGE, 0, 1, 0)));
    printf("%d %d\n", start[0], start[PAGE]);
    return 0;
}

static int empty_part(void)
{
    char *start = map_shared(8 * MIB);
    printf("discard %s", outcome(madvise(start + PAGE, 2 * PAGE, MADV_DONTNEED)));
    printf(" %s", load(start + PAGE));
    printf(", remove %s", outcome(madvise(start + PAGE, 2 * PAGE, MADV_REMOVE)));
    printf(" %s %s %s\n", load(start), load(start + PAGE), load(start + 3 * PAGE));
    return 0;
}

static int resize(void)
{
    char *grows = map_shared(8 * MIB), *shrinks = map_shared(8 * MIB), *again = map_shared(8 * MIB);
    char *part = map_shared(8 * MIB);
    /* The object stays as large as it was: what lies behind its end faults. */
    char *grown = mremap(grows, 8 * MIB, 16 * MIB, MREMAP_MAYMOVE);
    printf("grow %s", mapped(grown));
    if (grown != MAP_FAILED)
        printf(" %s %s %s", load(grown), load(grown + 8 * MIB - 1), load(grown + 8 * MIB));
    printf("\nshrink %s", mapped(mremap(shrinks, 8 * MIB, 4 * MIB, 0)));
    printf(" %s %s\n", load(shrinks), load(shrinks + 4 * MIB));
    char *second = mremap(again, 0, 8 * MIB, MREMAP_MAYMOVE);
    printf("second view %s", mapped(second));
    if (second != MAP_FAILED) {
        again[5] = 9;
        printf(" %d", second[5]);
    }
    char *moved = mremap(part + MIB, MIB, 2 * MIB, MREMAP_MAYMOVE);
    printf("\npart %s", mapped(moved));
    if (moved != MAP_FAILED)
        printf(" %s %s", load(moved), load(part + MIB));
    printf("\n");
    return 0;
}

static int locking_and_syncing(void)
{
    static unsigned char resident[4];
    char *start = map_shared(8 * MIB);
    printf("mlock %s", outcome(mlock(start, 8 * MIB)));
    printf(", msync %s", outcome(msync(start, 8 * MIB, MS_SYNC)));
    printf(", of a part %s", outcome(msync(start + PAGE, PAGE, MS_ASYNC)));
    printf(", munlock of a part %s", outcome(munlock(start + PAGE, PAGE)));
    printf(", mincore %s", outcome(mincore(start + PAGE, 2 * PAGE, resident)));
    printf(" %d\n", resident[0] & 1);
    return 0;
}

/* A part that a child protects for itself stays shared and writable for its parent. */
static int protected_by_a_child(void)
{
    char *start = map_shared(8 * MIB);
    pid_t child = fork();
    if (!child) {
        mprotect(start + PAGE, PAGE, PROT_READ);
        printf("child: %s %s\n", store(start + PAGE), store(start + 2 * PAGE));
        start[0] = 3;
        _exit(0);
    }
    ended_well("child", child);
    printf("parent: %s, child wrote %d %d\n", store(start + PAGE), start[0], start[2 * PAGE]);
    return 0;
}

static int system_v(void)
{
    int id = shmget(IPC_PRIVATE, 5 * MIB + 1, IPC_CREAT | 0600);
    struct shmid_ds state;
    char *space = map(64 * MIB);
    munmap(space, 64 * MIB);
    shmctl(id, IPC_STAT, &state);
    printf("size %zu", state.shm_segsz);
    char *start = shmat(id, 0, 0);
    printf(", anywhere %s", mapped(start));
    printf(", at a page %s", mapped(shmat(id, space + PAGE, 0)));
    printf(", rounded %s", mapped(shmat(id, space + 32 * MIB + PAGE + 1, SHM_RND)));
    printf(", read only %s\n", store(shmat(id, 0, SHM_RDONLY)));
    printf("mprotect of a part %s", outcome(mprotect(start + PAGE, PAGE, PROT_NONE)));
    printf(": %s %s", store(start), store(start + PAGE));
    printf(", its end %s", store(start + 5 * MIB + PAGE));
    printf(", detach %s", outcome(shmdt(start)));
    printf(", then %s\n", load(start));
    shmctl(id, IPC_RMID, 0);
    return 0;
}

MAIN(CASE(commit_parts), CASE(guard_page), CASE(unmap_part), CASE(map_over_part),
     CASE(remap_file_pages_of_part), CASE(empty_part), CASE(resize), CASE(locking_and_syncing),
     CASE(protected_by_a_child), CASE(system_v))
