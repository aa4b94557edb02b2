/* Touches PAGES pages of each of EXTENTS aligned 2 MiB, waits until WANT of them are superpages (at most 20 s; for 1 s if
 * none is wanted), and checks the contents. With `fork` a child of it does the same with contents of its own. With `step`
 * it waits for each superpage before it goes on to the next extent. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, EXTENT = 2 << 20 };

static int extents, pages, want, steps;

static long superpages(void)
{
    char line[256];
    long all = 0, kib;
    FILE *smaps = fopen("/proc/self/smaps_rollup", "r");
    while (fgets(line, sizeof line, smaps))
        if (sscanf(line, "AnonHugePages: %ld kB", &kib) == 1)
            all = kib / 2048;
    fclose(smaps);
    return all;
}

static void await(int want)
{
    for (int turn = 0; turn < (want ? 2000 : 100) && (!want || superpages() < want); turn++)
        usleep(10000);
}

static void fill(char *memory, int with)
{
    for (int extent = 0; extent < extents; extent++) {
        for (int page = 0; page < pages; page++)
            memset(memory + (long)extent * EXTENT + page * PAGE, with + page % 64, PAGE);
        if (steps)
            await(extent + 1);
    }
}

static int differs(const char *memory, int with)
{
    for (int extent = 0; extent < extents; extent++)
        for (int page = 0; page < EXTENT / PAGE; page++) {
            char expected = page < pages ? with + page % 64 : 0;
            const char *at = memory + (long)extent * EXTENT + page * PAGE;
            if (at[0] != expected || at[PAGE - 1] != expected)
                return 1;
        }
    return 0;
}

int main(int count, char **words)
{
    extents = atoi(words[1]), pages = atoi(words[2]), want = atoi(words[3]);
    char *memory = mmap(0, (long)(extents + 1) * EXTENT, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memory = (char *)(((long)memory + EXTENT - 1) / EXTENT * EXTENT);
    int with = 1, status = 0;
    int forks = count > 4 && !strcmp(words[4], "fork");
    steps = count > 4 && !strcmp(words[4], "step");
    if (forks && fork() == 0)
        with = 33;
    fill(memory, with);
    await(want);
    int is_bad = differs(memory, with);
    if (with == 1 && forks) {
        wait(&status);
        is_bad |= status != 0;
    }
    if (with == 1)
        printf("%s\n", is_bad ? "bad" : "ok");
    return is_bad;
}
