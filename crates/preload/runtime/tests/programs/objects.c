/* Objects that malloc gives mappings of their own: `objects WHAT COUNT SIZE`. Each prints words and numbers; with the
   directory of a control group in the variable GROUP also what it is charged. */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static size_t count, size;

static long number_in(const char *file) {
    char path[512];
    long value = -1;
    const char *group = getenv("GROUP");
    if (!group) return -1;
    snprintf(path, sizeof path, "%s/%s", group, file);
    FILE *stream = fopen(path, "r");
    if (!stream) return -1;
    if (fscanf(stream, "%ld", &value) != 1) value = -1;
    fclose(stream);
    return value;
}

static void show(const char *when) {
    char line[256];
    long kib, rss = 0, huge = 0, locked = 0;
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "Rss: %ld", &kib) == 1) rss = kib;
        if (sscanf(line, "AnonHugePages: %ld", &kib) == 1) huge = kib;
        if (sscanf(line, "Locked: %ld", &kib) == 1) locked = kib;
    }
    fclose(file);
    long charge = number_in("memory.usage_in_bytes");
    if (charge < 0) charge = number_in("memory.current");
    printf("%s rss %ld huge %ld locked %ld charge %ld\n", when, rss, huge, locked, charge < 0 ? 0 : charge >> 10);
}

/* What glibc says of its mappings. */
static void say(const char *when) {
    struct mallinfo2 all = mallinfo2();
    printf("%s mappings %zu bytes %zu\n", when, all.hblks, all.hblkhd);
}

static uint32_t state = 7;
static uint32_t next(void) { return (state = state * 1103515245 + 12345) >> 16; }

static void fill(char *object, size_t length, size_t number) {
    for (size_t at = 0; at + 8 < length; at += 4096) *(size_t *)(object + at) = number + at;
    object[length - 1] = (char)number;
}

static void check(char *object, size_t length, size_t number) {
    for (size_t at = 0; at + 8 < length; at += 4096)
        if (*(size_t *)(object + at) != number + at) abort();
    if (object[length - 1] != (char)number) abort();
}

static char **filled(void) {
    char **objects = calloc(count, sizeof *objects);
    for (size_t i = 0; i < count; i++) {
        objects[i] = malloc(size);
        fill(objects[i], size, i);
    }
    return objects;
}

/* Allocates, resizes and frees at random, and checks contents: in threads and children as well. */
static void *churn(void *seed) {
    enum { KEPT = 24 };
    char *kept[KEPT] = {0};
    size_t lengths[KEPT] = {0};
    uint32_t mine = (uint32_t)(uintptr_t)seed;
    for (size_t step = 0; step < count * 20; step++) {
        mine = mine * 1103515245 + 12345;
        size_t i = (mine >> 16) % KEPT, length = size / 2 + (mine >> 8) % size;
        if (!kept[i]) {
            kept[i] = mine & 1 << 30 ? calloc(1, length) : malloc(length);
            if (mine & 1 << 30)
                for (size_t at = 0; at < length; at += 512)
                    if (kept[i][at]) abort();
        } else {
            check(kept[i], lengths[i], i);
            if (mine & 1 << 29) {
                free(kept[i]);
                kept[i] = 0;
                continue;
            }
            size_t both = length < lengths[i] ? length : lengths[i];
            kept[i] = realloc(kept[i], length);
            for (size_t at = 0; at + 4096 < both; at += 4096)
                if (*(size_t *)(kept[i] + at) != i + at) abort();
        }
        if (malloc_usable_size(kept[i]) < length) abort();
        lengths[i] = length;
        fill(kept[i], length, i);
    }
    for (size_t i = 0; i < KEPT; i++) {
        if (kept[i]) check(kept[i], lengths[i], i);
        free(kept[i]);
    }
    return 0;
}

int main(int words, char **arguments) {
    const char *what = arguments[1];
    count = words > 2 ? strtoul(arguments[2], 0, 10) : 0;
    size = words > 3 ? strtoul(arguments[3], 0, 10) : 0;
    /* So that objects stay mappings whatever was freed. */
    if (!strcmp(what, "random") || !strcmp(what, "churn") || !strcmp(what, "forks")) mallopt(M_MMAP_THRESHOLD, 128 << 10);
    if (!strcmp(what, "kept")) {
        char **objects = filled();
        show("filled");
        say("filled");
        for (size_t i = 0; i < count; i++) check(objects[i], size, i), free(objects[i]);
        show("freed");
        say("freed");
    } else if (!strcmp(what, "told")) {
        /* Before each round, a text takes the place of that in /proc/buddyinfo, a writable file there. */
        for (int i = 4; i < words; i++) {
            FILE *file = fopen("/proc/buddyinfo", "w");
            if (!file || fputs(arguments[i], file) < 0 || fclose(file)) return 3;
            filled();
            show("filled");
        }
    } else if (!strcmp(what, "random")) {
        char **objects = filled();
        size_t left = 0;
        for (size_t i = 0; i < count; i++) {
            if (next() % 10 < 8) free(objects[i]), objects[i] = 0;
            left += objects[i] != 0;
        }
        show("freed");
        say("freed");
        printf("left %zu\n", left);
        for (size_t i = 0; i < count; i++)
            if (objects[i]) check(objects[i], size, i);
            else fill(objects[i] = malloc(size), size, i);
        show("again");
        for (size_t i = 0; i < count; i++) check(objects[i], size, i), free(objects[i]);
        show("empty");
        say("empty");
    } else if (!strcmp(what, "sparse")) {
        for (size_t i = 0; i < count; i++) {
            char *object = calloc(1, size);
            for (size_t at = 0; at < size; at += 65536) object[at] = 1;
        }
        show("sparse");
    } else if (!strcmp(what, "later")) {
        /* Dense objects, then three times as many that are hardly touched. */
        filled();
        for (size_t i = 0; i < 3 * count; i++) {
            char *object = malloc(size);
            for (size_t at = 0; at < size; at += 65536) object[at] = 1;
        }
        show("later");
    } else if (!strcmp(what, "aligned")) {
        filled();
        for (size_t alignment = 16; alignment <= 8 << 20; alignment *= 2) {
            void *object = 0;
            if (posix_memalign(&object, alignment, size)) abort();
            if ((uintptr_t)object % alignment || malloc_usable_size(object) < size) abort();
            fill(object, size, alignment);
            object = realloc(object, 2 * size);
            if (((char *)object)[size - 1] != (char)alignment) abort();
            free(object);
        }
        say("aligned");
    } else if (!strcmp(what, "resized")) {
        char **objects = filled();
        for (int round = 0; round < 6; round++)
            for (size_t i = 0; i < count; i++) {
                static const size_t eighths[] = {16, 4, 12, 1, 24, 8};
                objects[i] = realloc(objects[i], size / 8 * eighths[round]);
                if (((size_t *)objects[i])[0] != i) abort();
            }
        say("resized");
        for (size_t i = 0; i < count; i++) free(objects[i]);
        say("freed");
        show("freed");
    } else if (!strcmp(what, "doubled")) {
        /* Vectors: each is filled, doubled, and filled further, up to `size`. */
        char **objects = calloc(count, sizeof *objects);
        for (size_t i = 0; i < count; i++) {
            size_t length = 64 << 10;
            objects[i] = malloc(length);
            fill(objects[i], length, i);
            while (length < size >> i % 3) {
                objects[i] = realloc(objects[i], 2 * length);
                for (size_t at = length; at < 2 * length; at += 4096) *(size_t *)(objects[i] + at) = i + at;
                length *= 2;
            }
            for (size_t at = 4096; at < length; at += 4096)
                if (*(size_t *)(objects[i] + at) != i + at) abort();
        }
        show("doubled");
        say("doubled");
        for (size_t i = 0; i < count; i++) free(objects[i]);
        show("freed");
        say("freed");
    } else if (!strcmp(what, "churn")) {
        pthread_t threads[4];
        for (size_t i = 0; i < 4; i++) pthread_create(threads + i, 0, churn, (void *)(i * 77 + 1));
        for (size_t i = 0; i < 4; i++) pthread_join(threads[i], 0);
        say("churned");
    } else if (!strcmp(what, "forks")) {
        char **objects = filled();
        for (int round = 0; round < 6; round++) {
            pid_t child = fork();
            if (!child) {
                for (size_t i = 0; i < count; i++) check(objects[i], size, i);
                for (size_t i = round; i < count; i += 2) free(objects[i]), fill(objects[i] = malloc(size), size, i + 9);
                for (size_t i = round; i < count; i += 2) check(objects[i], size, i + 9);
                churn((void *)5);
                _exit(0);
            }
            for (size_t i = round; i < count; i += 3) free(objects[i]), fill(objects[i] = malloc(size), size, i);
            int status;
            if (waitpid(child, &status, 0) != child || status) abort();
            for (size_t i = 0; i < count; i++) check(objects[i], size, i);
        }
        say("forked");
    } else if (!strcmp(what, "locked")) {
        filled();
        if (mlockall(MCL_CURRENT | MCL_FUTURE)) return 77;
        show("held");
        filled();
        show("held");
    }
    return 0;
}
