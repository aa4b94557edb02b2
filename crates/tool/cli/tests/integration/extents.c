/* Touches PAGES pages of each of EXTENTS aligned 2 MiB, waits until WANT of them are superpages (at most 20 s; for 1 s if
 * none is wanted), and checks the contents. With `fork` a child of it does the same with contents of its own. With `step`
 * it waits for each superpage before it goes on to the next extent; with `use` it touches the rest of each then. With
 * `more MIB` it touches so much more memory after all that. With `share` a page of
 * each extent is held by a pipe, so that none can be made, until it has forked; it prints `unshared` if its share of the
 * memory (PSS) is more than 3/4 a second later. With `own` it reads its own pages only: where memory lies in files, a
 * page that is read is there. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, EXTENT = 2 << 20 };

static int extents, pages, want, steps, uses, checked = EXTENT / PAGE;

static long kib_of(const char *what)
{
    char line[256], name[64];
    long all = 0, kib;
    FILE *smaps = fopen("/proc/self/smaps_rollup", "r");
    while (fgets(line, sizeof line, smaps))
        if (sscanf(line, "%63[^:]: %ld kB", name, &kib) == 2 && !strcmp(name, what))
            all = kib;
    fclose(smaps);
    return all;
}

static long superpages(void)
{
    return (kib_of("AnonHugePages") + kib_of("ShmemPmdMapped") + kib_of("Private_Hugetlb")) / 2048;
}

static void await(int want)
{
    for (int turn = 0; turn < (want ? 2000 : 300) && (!want || superpages() < want); turn++)
        usleep(10000);
}

static void fill(char *memory, int with)
{
    for (int extent = 0; extent < extents; extent++) {
        for (int page = 0; page < pages; page++)
            memset(memory + (long)extent * EXTENT + page * PAGE, with + page % 64, PAGE);
        if (steps || uses)
            await(extent + 1);
        for (int page = pages; uses && page < EXTENT / PAGE; page++)
            memset(memory + (long)extent * EXTENT + page * PAGE, with + page % 64, PAGE);
    }
    if (uses)
        pages = EXTENT / PAGE;
}

static int differs(const char *memory, int with)
{
    for (int extent = 0; extent < extents; extent++)
        for (int page = 0; page < checked; page++) {
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
    const char *how = count > 4 ? words[4] : "";
    int forks = !strcmp(how, "fork"), shares = !strcmp(how, "share");
    steps = !strcmp(how, "step"), uses = !strcmp(how, "use");
    checked = strcmp(how, "own") ? EXTENT / PAGE : pages;
    if (forks && fork() == 0)
        with = 33;
    int held[2], until[2];
    if (shares && (pipe(held) || pipe(until) || fcntl(held[1], F_SETPIPE_SZ, 1 << 20) < 0))
        return 2;
    for (int extent = 0; shares && extent < extents; extent++) {
        memory[(long)extent * EXTENT] = with;
        struct iovec page = {memory + (long)extent * EXTENT, PAGE};
        if (vmsplice(held[1], &page, 1, 0) != PAGE)
            return 2;
    }
    fill(memory, with);
    if (shares) {
        usleep(20000);
        int is_child = fork() == 0;
        close(held[0]), close(held[1]);
        if (is_child) {
            char end;
            close(until[1]);
            return read(until[0], &end, 1) != 0 || differs(memory, with);
        }
    }
    await(want);
    if (shares) {
        if (kib_of("Pss") > 3 * extents * EXTENT / 4096)
            printf("unshared\n");
        close(until[1]);
        wait(&status);
    }
    long more = !strcmp(how, "more") ? atol(words[5]) << 20 : 0;
    char *other = more ? mmap(0, more, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) : 0;
    for (long at = 0; at < more; at += PAGE) {
        other[at] = 1;
        if (at % (1 << 20) == 0)
            usleep(2000);
    }
    int is_bad = differs(memory, with) || status;
    if (with == 1 && forks) {
        wait(&status);
        is_bad |= status != 0;
    }
    if (with == 1)
        printf("%s\n", is_bad ? "bad" : "ok");
    return is_bad;
}
