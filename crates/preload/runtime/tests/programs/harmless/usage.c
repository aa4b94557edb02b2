/* What the kernel counts of a process, and what it merges. */
#include "common.h"
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>

/* In units of 20 MiB, rounded: small differences are not the program's. */
static long peak(int who)
{
    struct rusage usage;
    getrusage(who, &usage);
    return (usage.ru_maxrss + 10 * 1024) / (20 * 1024);
}

static void consume(size_t megabytes)
{
    free(memset(malloc(megabytes * MIB), 1, megabytes * MIB));
}

/* A child starts with what it has of its parent; a parent is told of its largest child. */
static int peaks_of_children(void)
{
    consume(100);
    printf("self %ld, children %ld\n", peak(RUSAGE_SELF), peak(RUSAGE_CHILDREN));
    pid_t child = fork();
    if (!child) {
        printf("child before %ld", peak(RUSAGE_SELF));
        consume(200);
        printf(", after %ld\n", peak(RUSAGE_SELF));
        _exit(0);
    }
    ended_well("child", child);
    printf("self %ld, children %ld\n", peak(RUSAGE_SELF), peak(RUSAGE_CHILDREN));
    return 0;
}

static long merging_pages(void)
{
    char line[64];
    int fd = open("/proc/self/ksm_merging_pages", O_RDONLY);
    ssize_t got = fd < 0 ? -1 : read(fd, line, sizeof line - 1);
    close(fd);
    line[got > 0 ? got : 0] = 0;
    return got > 0 ? atol(line) : -1;
}

/* Pages of one content, marked as mergeable by advice or for the whole process: all but one of them
 * are merged, and unmerged when the mark goes. The kernel's daemon must be running. */
static int merge(int (*mark)(char *, int))
{
    if (merging_pages() < 0) {
        printf("no KSM\n");
        return SKIPPED;
    }
    char *start = map(2 * MIB);
    printf("mark %s", outcome(mark(start, 1)));
    memset(start, 0xcf, 2 * MIB);
    for (int i = 0; i < 900 && merging_pages() < 512; i++)
        usleep(100000);
    printf(", merged %ld", merging_pages());
    printf(", unmark %s", outcome(mark(start, 0)));
    for (int i = 0; i < 900 && merging_pages() > 0; i++)
        usleep(100000);
    printf(", merged %ld, %x %x\n", merging_pages(), (unsigned char)start[0],
           (unsigned char)start[2 * MIB - 1]);
    return 0;
}

static int by_advice(char *start, int merges)
{
    return madvise(start, 2 * MIB, merges ? MADV_MERGEABLE : MADV_UNMERGEABLE);
}

static int by_prctl(char *start, int merges)
{
    (void)start;
    return prctl(67 /* PR_SET_MEMORY_MERGE */, merges, 0, 0, 0);
}

static int merged_by_advice(void)
{
    return merge(by_advice);
}

static int merged_by_prctl(void)
{
    return merge(by_prctl);
}

MAIN(CASE(peaks_of_children), CASE(merged_by_advice), CASE(merged_by_prctl))
