/* userfaultfd. On base pages every first touch of registered memory comes to the program's handler,
 * as a write where it is one, and pages are filled and write-protected one by one. */
#include "common.h"
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

static int userfault;
static char *source;
static long missing, reads, protected;

static void *handle(void *unused)
{
    struct uffd_msg message;
    while (read(userfault, &message, sizeof message) == sizeof message) {
        unsigned long page = message.arg.pagefault.address & -PAGE;
        if (message.arg.pagefault.flags & UFFD_PAGEFAULT_FLAG_WP) {
            struct uffdio_writeprotect protect = {{page, PAGE}, 0};
            protected++;
            ioctl(userfault, UFFDIO_WRITEPROTECT, &protect);
            continue;
        }
        missing++;
        reads += !(message.arg.pagefault.flags & UFFD_PAGEFAULT_FLAG_WRITE);
        /* A handler that maps memory of its own. */
        munmap(map(8 * MIB), 8 * MIB);
        struct uffdio_copy copy = {.dst = page, .src = (unsigned long)source, .len = PAGE};
        ioctl(userfault, UFFDIO_COPY, &copy);
    }
    return unused;
}

static void open_userfault(unsigned long features)
{
    struct uffdio_api api = {.api = UFFD_API, .features = features};
    /* A program that has used such memory before. */
    for (int i = 0; i < 3; i++) {
        char *start = memset(map(16 * MIB), 1, 16 * MIB);
        munmap(start, 16 * MIB);
        usleep(50000);
    }
    source = memset(aligned_alloc(PAGE, PAGE), 'D', PAGE);
    userfault = syscall(SYS_userfaultfd, O_CLOEXEC);
    if (userfault < 0 || ioctl(userfault, UFFDIO_API, &api)) {
        printf("no userfaultfd: %s\n", strerrorname_np(errno));
        _exit(SKIPPED);
    }
}

static void watch(char *start, size_t length, int mode)
{
    pthread_t thread;
    struct uffdio_register range = {{(unsigned long)start, length}, mode, 0};
    printf("register %s\n", outcome(ioctl(userfault, UFFDIO_REGISTER, &range)));
    pthread_create(&thread, 0, handle, 0);
}

static void fill(char *start, size_t length)
{
    int without = 0;
    watch(start, length, UFFDIO_REGISTER_MODE_MISSING);
    for (size_t at = 0; at < length; at += PAGE) {
        start[at + 1] = 1;
        without += start[at] != 'D';
    }
    printf("faults %ld, as reads %ld, pages without data %d\n", missing, reads, without);
}

static int fills_a_mapping(void)
{
    open_userfault(0);
    fill(map(16 * MIB), 16 * MIB);
    return 0;
}

static int fills_memory_of_malloc(void)
{
    open_userfault(0);
    /* With and without malloc's own words at the beginning of a superpage. */
    for (int words = 0; words <= 64; words += 64) {
        char *memory = malloc(16 * MIB - words);
        fill((char *)(((uintptr_t)memory + PAGE) & -PAGE), 15 * MIB);
    }
    return 0;
}

/* Before it is watched, one page of each superpage is written to. */
static int fills_what_was_begun(void)
{
    char mode[64] = "";
    FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "r");
    if (file && fgets(mode, sizeof mode, file) && strstr(mode, "[always]")) {
        printf("all memory gets THP\n");
        return SKIPPED;
    }
    if (file)
        fclose(file);
    open_userfault(0);
    char *start = map(16 * MIB);
    for (size_t at = MIB; at < 16 * MIB; at += 2 * MIB)
        start[at] = 1;
    fill(start, 16 * MIB);
    return 0;
}

/* Of memory that is watched, two superpages were written to and may not be read now. */
static int watches_what_may_not_be_read(void)
{
    open_userfault(0);
    char *start = map(16 * MIB);
    char *closed = (char *)(((uintptr_t)start + 4 * MIB) & -(2 * MIB));
    for (size_t at = MIB; at < 16 * MIB; at += 2 * MIB)
        start[at] = 1;
    closed[0] = closed[2 * MIB] = 7;
    mprotect(closed, 4 * MIB, PROT_NONE);
    watch(start, 16 * MIB, UFFDIO_REGISTER_MODE_MISSING);
    mprotect(closed, 4 * MIB, PROT_READ | PROT_WRITE);
    printf("contents %d %d\n", closed[0], closed[2 * MIB]);
    return 0;
}

/* A part of a mapping that has contents is protected, and each write to it is seen. */
static int sees_writes(void)
{
    open_userfault(UFFD_FEATURE_PAGEFAULT_FLAG_WP);
    char *start = map_filled(8 * MIB);
    struct uffdio_writeprotect protect = {{(unsigned long)start + MIB, 64 * PAGE},
                                          UFFDIO_WRITEPROTECT_MODE_WP};
    watch(start, 8 * MIB, UFFDIO_REGISTER_MODE_WP);
    printf("protect %s\n", outcome(ioctl(userfault, UFFDIO_WRITEPROTECT, &protect)));
    for (size_t at = 0; at < 8 * MIB; at += PAGE)
        start[at]++;
    printf("writes seen %ld, %d\n", protected, start[MIB]);
    return 0;
}

MAIN(CASE(fills_a_mapping), CASE(fills_memory_of_malloc), CASE(fills_what_was_begun),
     CASE(watches_what_may_not_be_read), CASE(sees_writes))
