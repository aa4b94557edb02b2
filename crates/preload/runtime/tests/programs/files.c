// Maps a file and reads it: `files FILE OFFSET WAY [WORD...]`, by `order` or at `random` places, or as `calls`: what a
// program may do to such a mapping, with all results. Words: `shared`, `populate`, `cold` (first dropped from the
// cache), `willneed`, `sealed` (gives up gaining privileges first, as before a seccomp filter), `discards` (all of it, and reads it again), `hold` (waits for the end of standard input before it ends).
// Prints `us N huge_kib N resident_kib N pss_kib N mappings N copied_kib N results N`; results and mappings do not depend on
// superpages.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const size_t MIB = 1 << 20;
static uint64_t results = 14695981039346656037u;

static void result(uint64_t it)
{
    results = (results ^ it) * 1099511628211u;
}

static int has(int count, char **arguments, const char *word)
{
    for (int i = 4; i < count; i++) if (!strcmp(arguments[i], word)) return 1;
    return 0;
}

static long now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1000000 + at.tv_nsec / 1000;
}

// Of all mappings with that name, or with the address in them.
static long of_file(const char *name, uintptr_t start, uintptr_t end, const char *field)
{
    FILE *file = fopen("/proc/self/smaps", "r");
    char line[512];
    long sum = 0, value;
    int is_it = 0;
    while (fgets(line, sizeof line, file)) {
        unsigned long from, to;
        char access[8];
        if (sscanf(line, "%lx-%lx %7s", &from, &to, access) == 3) {
            is_it = (!name || strstr(line, name)) && start <= from && to <= end;
            if (is_it && !strcmp(field, "mappings")) sum++;
        } else if (is_it && !strncmp(line, field, strlen(field))
                   && sscanf(line + strlen(field), ": %ld", &value) == 1) {
            sum += value;
        }
    }
    fclose(file);
    return sum;
}

static sigjmp_buf back;

static void on_bus(int signal)
{
    siglongjmp(back, signal);
}

static int touch(const char *at)
{
    int signal = sigsetjmp(back, 1);
    if (!signal) result(*(const volatile char *)at);
    return signal;
}

static void calls(const char *path, char *start, size_t length, int fd, int is_shared)
{
    struct sigaction action = { .sa_handler = on_bus };
    sigaction(SIGBUS, &action, 0);
    sigaction(SIGSEGV, &action, 0);
    result(touch(start + length - 1));
    // A child has it too.
    pid_t child = fork();
    if (!child) _exit(touch(start + 5 * MIB));
    int status = 0;
    waitpid(child, &status, 0);
    result(status);
    // Written to, where the file may be.
    result(mprotect(start + 4 * MIB, 2 * MIB + 4096, PROT_READ | PROT_WRITE));
    if (!is_shared) {
        start[4 * MIB + 12345] = 77;
        char byte = 0;
        result(pread(fd, &byte, 1, 4 * MIB + 12345));
        result(byte == start[4 * MIB + 12345]);
        result(msync(start + 4 * MIB, 4096, MS_SYNC));
        result(madvise(start + 4 * MIB, MIB, MADV_DONTNEED));
        result(start[4 * MIB + 12345]);
    }
    result(touch(start + 6 * MIB));
    unsigned char present = 0;
    result(mincore(start + 6 * MIB, 1, &present));
    result(present & 1);
    // Parts are unmapped, protected and mapped over.
    result(munmap(start + 8 * MIB, MIB));
    result(touch(start + 8 * MIB));
    result(touch(start + 9 * MIB));
    result(mprotect(start + 10 * MIB, 4096, PROT_NONE));
    result(touch(start + 10 * MIB));
    result(touch(start + 10 * MIB + 4096));
    result(mmap(start + 12 * MIB, 3 * 4096, PROT_READ, MAP_FIXED | MAP_PRIVATE, fd, 0) == start + 12 * MIB);
    result(touch(start + 12 * MIB + 5000));
    // It is moved, with what is in it, and shrunk.
    char *moved = mremap(start + 16 * MIB, 5 * MIB, 5 * MIB, MREMAP_MAYMOVE | MREMAP_FIXED, start + 8 * MIB);
    result(moved == start + 8 * MIB);
    result(touch(start + 9 * MIB + 77));
    moved = mremap(start + 32 * MIB, length - 32 * MIB, 16 * MIB + 4096, 0);
    result(moved == start + 32 * MIB);
    result(touch(start + 48 * MIB));
    result(touch(start + 49 * MIB));
    // The system reads from it and refuses to write to it.
    int pipes[2];
    result(pipe(pipes));
    result(write(pipes[1], start + 33 * MIB, 100));
    result(read(pipes[0], start + 33 * MIB, 100));
    // What another cuts off is gone.
    result(truncate(path, 40 * MIB + 100));
    result(touch(start + 40 * MIB));
    result(touch(start + 40 * MIB + 100));
    result(touch(start + 40 * MIB + 4096));
    result(touch(start + 44 * MIB));
    result(munmap(start, length));
    result(touch(start));
}

int main(int count, char **arguments)
{
    if (count < 4) return 2;
    const char *path = arguments[1], *way = arguments[3];
    off_t offset = strtoul(arguments[2], 0, 10);
    int fd = open(path, O_RDONLY);
    struct stat file;
    if (fd < 0 || fstat(fd, &file)) return perror(path), 1;
    size_t length = file.st_size - offset;
    if (has(count, arguments, "cold") && (fsync(fd) || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED))) return 1;
    if (has(count, arguments, "sealed")) prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    int is_shared = has(count, arguments, "shared");
    int flags = (is_shared ? MAP_SHARED : MAP_PRIVATE) | (has(count, arguments, "populate") ? MAP_POPULATE : 0);
    long begin = now();
    char *start = mmap(0, length, PROT_READ, flags, fd, offset);
    if (start == MAP_FAILED) return perror("mmap"), 1;
    if (has(count, arguments, "willneed")) result(madvise(start, length, MADV_WILLNEED));
    const uint64_t *words = (const uint64_t *)start;
    size_t sum = 0;
    if (!strcmp(way, "random")) {
        // Each place depends on what was read before, as in a search.
        uint64_t at = 88172645463325252u;
        for (long i = 0; i < 2000000; i++) {
            at ^= at << 13, at ^= at >> 7, at ^= at << 17;
            sum += words[(at + (sum & 1)) % (length / 8)];
        }
    } else {
        for (size_t i = 0; i < length / 8; i++) sum += words[i];
    }
    result(sum);
    long us = now() - begin;
    uintptr_t from = (uintptr_t)start, to = from + (length + 4095) / 4096 * 4096;
    const char *name = strrchr(path, '/') + 1;
    long huge = of_file(0, from, to, "FilePmdMapped") + of_file(0, from, to, "ShmemPmdMapped");
    printf("us %ld huge_kib %ld resident_kib %ld pss_kib %ld mappings %ld copied_kib %ld", us, huge, of_file(0, from, to, "Rss"),
           of_file(0, from, to, "Pss"), of_file(name, from, to, "mappings"), of_file(0, from, to, "AnonHugePages"));
    fflush(stdout);
    if (has(count, arguments, "hold")) while (getchar() != EOF) {}
    if (has(count, arguments, "hold")) printf(" pss_kib_held %ld", of_file(0, from, to, "Pss"));
    if (has(count, arguments, "discards")) {
        result(madvise(start, length, MADV_DONTNEED));
        for (size_t i = sum = 0; i < length / 8; i++) sum += words[i];
        result(sum);
        result(madvise(start, length, MADV_FREE));
        result(errno);
    }
    if (!strcmp(way, "calls")) calls(path, start, length, fd, is_shared);
    printf(" results %lu\n", (unsigned long)results);
}
