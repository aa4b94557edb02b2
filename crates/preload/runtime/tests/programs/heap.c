/* Uses of malloc whose memory the tests look at. First argument: what; each prints words and numbers. */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void show(const char *when) {
    char line[256];
    long kib, rss = 0, huge = 0, pool = 0;
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "Rss: %ld", &kib) == 1) rss = kib;
        if (sscanf(line, "AnonHugePages: %ld", &kib) == 1) huge = kib;
        if (sscanf(line, "Private_Hugetlb: %ld", &kib) == 1) pool = kib;
    }
    fclose(file);
    printf("%s rss %ld huge %ld pool %ld\n", when, rss >> 10, huge >> 10, pool >> 10);
}

/* Objects of 100 to 250 bytes, so many MiB, each checked once all are there. */
static void *fill(void *argument) {
    size_t count = (size_t)(intptr_t)argument * (1 << 20) / 190;
    unsigned char **objects = malloc(count * sizeof *objects);
    for (size_t i = 0; i < count; i++) {
        objects[i] = malloc(100 + i % 150);
        memset(objects[i], (int)i, 100 + i % 150);
    }
    for (size_t i = 0; i < count; i++)
        if (objects[i][0] != (unsigned char)i || objects[i][99 + i % 150] != (unsigned char)i) abort();
    return objects;
}

static int is_mapped(void *memory) { return (((size_t *)memory)[-1] & 2) != 0; }

/* Which objects get mappings of their own, as mappings are freed and the heap grows past 8 MiB. What
   the arena holds ahead then may serve objects of up to 10 MiB: those are not asked for. */
static void thresholds(int option) {
    if (option) printf("mallopt %d\n", mallopt(M_MMAP_THRESHOLD, 1 << 20));
    size_t sizes[] = {100 << 10, 200 << 10, 1 << 20, 14 << 20, 31 << 20, 40 << 20};
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < 6; i++) {
            void *memory = malloc(sizes[i]);
            printf("%d", is_mapped(memory));
            if (i <= round + 1) free(memory);
        }
        puts("");
        if (round == 1) fill((void *)60);
    }
}

/* `amount` MiB of small objects, then 600 large ones from malloc, calloc and realloc in turn, with small ones between; 4 of 5 of the
   large ones are freed. */
static void mix(long amount) {
    enum { LARGE = 1000000 };
    unsigned char *large[600];
    fill((void *)amount);
    for (int i = 0; i < 600; i++) {
        if (i % 3 == 0) large[i] = malloc(LARGE);
        if (i % 3 == 1) large[i] = calloc(LARGE, 1);
        if (i % 3 == 2) large[i] = realloc(memset(malloc(5000), i, 5000), LARGE);
        /* calloc zeroes all of it; realloc keeps 5000 bytes. */
        int known = i % 3 == 1 ? LARGE : i % 3 == 2 ? 5000 : 0;
        for (int at = 0; at < known; at++)
            if (large[i][at] != (i % 3 == 1 ? 0 : (unsigned char)i)) abort();
        memset(large[i], i + 1, LARGE);
        if (i % 10 == 0) memset(malloc(3000), 1, 3000);
    }
    show("full");
    for (int i = 0; i < 600; i++) {
        if (large[i][0] != (unsigned char)(i + 1) || large[i][LARGE - 1] != (unsigned char)(i + 1)) abort();
        if (i % 5) free(large[i]);
    }
}

int main(int count, char **arguments) {
    const char *what = arguments[1];
    long amount = count > 2 ? atol(arguments[2]) : 0;
    if (!strcmp(what, "locked")) {
        /* None of it is about what comes: the first is refused, the last takes the second back. */
        mlockall(MCL_FUTURE | 1 << 20);
        /* Where locks are limited the last may fail, and then nothing is taken back. */
        if (!mlockall(MCL_FUTURE) && mlockall(MCL_CURRENT)) munlockall();
        what = "small";
    }
    if (!strcmp(what, "small")) {
        fill((void *)amount);
    } else if (!strcmp(what, "mixed")) {
        mix(amount);
    } else if (!strcmp(what, "sparse")) {
        /* Of objects of 60 KB one page in 16 is touched. */
        for (long left = amount << 20; left > 0; left -= 60000)
            ((volatile char *)malloc(60000))[0] = 1;
    } else if (!strcmp(what, "threads")) {
        pthread_t threads[4];
        for (int i = 0; i < 4; i++) pthread_create(threads + i, 0, fill, (void *)amount);
        for (int i = 0; i < 4; i++) pthread_join(threads[i], 0);
    } else if (!strcmp(what, "pieces")) {
        /* So many MiB in pieces of so many KiB. */
        long kib = atol(arguments[3]);
        for (long i = 0; i < amount * 1024 / kib; i++) memset(malloc(kib << 10), 1, kib << 10);
    } else if (!strcmp(what, "grow")) {
        unsigned char *memory = 0, *before = 0, *beside = 0;
        int moved = 0;
        for (long size = 1; size <= amount; size++) {
            memory = realloc(memory, size << 20);
            moved += size > 16 && memory != before;
            before = memory;
            if (count > 3 && size == 20) {
                /* Somebody else comes to lie where it would grow. */
                beside = mmap(memory + malloc_usable_size(memory), 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
                *beside = 7;
            }
            memset(memory + ((size - 1) << 20), (int)size, 1 << 20);
        }
        for (long size = 1; size <= amount; size++)
            if (memory[(size << 20) - 1] != (unsigned char)size || memory[(size - 1) << 20] != (unsigned char)size) abort();
        show("grown");
        printf("moved %d usable %zu mapped %zu\n", moved, malloc_usable_size(memory) >> 20, mallinfo2().hblkhd >> 20);
        if (beside && *beside != 7) abort();
        for (long size = amount; size > amount / 2; size--) memory = realloc(memory, size << 20);
        for (long size = 1; size <= amount / 2; size++)
            if (memory[(size << 20) - 1] != (unsigned char)size) abort();
        show("shrunk");
        free(memory);
        printf("left %zu\n", mallinfo2().hblkhd);
    } else if (!strcmp(what, "nothing")) {
        /* realloc to nothing frees, also where the heap is grown ahead. */
        fill((void *)amount);
        for (int i = 0; i < 200; i++) {
            size_t sizes[] = {100, 200 << 10, 3 << 20, 9 << 20, 40 << 20};
            char *memory = malloc(sizes[i % 5]);
            memory[0] = memory[sizes[i % 5] - 1] = 1;
            if (realloc(memory, 0)) abort();
        }
        printf("mapped %zu\n", mallinfo2().hblkhd >> 20);
    } else if (!strcmp(what, "thresholds")) {
        thresholds(0);
        return 0;
    } else if (!strcmp(what, "chosen")) {
        thresholds(1);
        return 0;
    } else if (!strcmp(what, "aligned")) {
        for (size_t alignment = 16; alignment <= 64 << 20; alignment *= 4) {
            void *memory = 0;
            if (posix_memalign(&memory, alignment, amount << 20)) abort();
            if ((uintptr_t)memory % alignment) abort();
            memset(memory, 1, amount << 20);
            memory = realloc(memory, (amount + 9) << 20);
            for (long at = 0; at < amount << 20; at += 4096)
                if (((char *)memory)[at] != 1) abort();
            free(memory);
        }
    }
    show("end");
    return 0;
}
