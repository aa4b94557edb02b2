// An object grows while /proc/buddyinfo says one thing after another: `grow (malloc|mmap) MIB TEXT...`. Before each
// step a TEXT takes the file's place (`mount --bind` of a file that can be written); then the object is filled, and MIB
// are added. Prints a line for each step, `step N advised_kib N withdrawn_kib N parts N`, of the mappings that the
// object lies in. Ends with 1 if its contents did not stay.
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static void says(const char *text)
{
    FILE *file = fopen("/proc/buddyinfo", "w");
    if (!file || fputs(text, file) < 0 || fclose(file)) exit(3);
}

static void look(int step, char *object, size_t length)
{
    FILE *file = fopen("/proc/self/smaps", "r");
    char line[512];
    uintptr_t from = (uintptr_t)object, to = from + length, start, end;
    size_t part = 0, advised = 0, withdrawn = 0, parts = 0;
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "%lx-%lx ", &start, &end) == 2) {
            uintptr_t low = start > from ? start : from, high = end < to ? end : to;
            part = low < high ? high - low : 0;
            parts += part > 0;
        } else if (!strncmp(line, "VmFlags:", 8)) {
            if (strstr(line, " hg")) advised += part;
            if (strstr(line, " nh")) withdrawn += part;
        }
    }
    if (file) fclose(file);
    printf("step %d advised_kib %zu withdrawn_kib %zu parts %zu\n", step, advised >> 10, withdrawn >> 10, parts);
}

int main(int count, char **arguments)
{
    if (count < 4) return 2;
    int is_malloc = !strcmp(arguments[1], "malloc");
    size_t added = strtoul(arguments[2], 0, 10) << 20, length = 0;
    uint64_t *object = 0;
    for (int step = 0; step + 3 < count; step++) {
        says(arguments[step + 3]);
        for (size_t word = 0; word < length / 8; word++) object[word] = word;
        if (is_malloc) object = realloc(object, length + added);
        else if (!step) object = mmap(0, added, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        else object = mremap(object, length, length + added, MREMAP_MAYMOVE);
        if (!object || object == MAP_FAILED) return 3;
        for (size_t word = 0; word < length / 8; word++) if (object[word] != word) return 1;
        length += added;
        look(step, (char *)object, length);
    }
    return 0;
}
