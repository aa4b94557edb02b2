/* Transfers in flight into memory of which a part is protected or unmapped meanwhile. On base pages
 * they end up in that memory: the kernel holds the pages that the program sees. */
#include "common.h"
#include <fcntl.h>
#include <linux/io_uring.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#define LENGTH (8 * MIB)

/* A ring of the kernel's, by system calls alone. */
static struct ring {
    int fd;
    struct io_uring_params parameters;
    char *submissions, *completions;
    struct io_uring_sqe *entries;
} ring;

static void open_ring(void)
{
    ring.fd = syscall(SYS_io_uring_setup, 8, &ring.parameters);
    if (ring.fd < 0) {
        printf("no io_uring: %s\n", strerrorname_np(errno));
        _exit(SKIPPED);
    }
    int flags = MAP_SHARED | MAP_POPULATE;
    ring.submissions = mmap(0, 65536, READ_WRITE, flags, ring.fd, IORING_OFF_SQ_RING);
    ring.completions = mmap(0, 65536, READ_WRITE, flags, ring.fd, IORING_OFF_CQ_RING);
    ring.entries = mmap(0, 8 * sizeof *ring.entries, READ_WRITE, flags, ring.fd, IORING_OFF_SQES);
}

static _Atomic unsigned *counter(char *queue, unsigned offset)
{
    return (_Atomic unsigned *)(queue + offset);
}

static void submit(struct io_uring_sqe entry)
{
    _Atomic unsigned *tail = counter(ring.submissions, ring.parameters.sq_off.tail);
    unsigned at = *tail & (ring.parameters.sq_entries - 1);
    ring.entries[at] = entry;
    ((unsigned *)(ring.submissions + ring.parameters.sq_off.array))[at] = at;
    *tail = *tail + 1;
    syscall(SYS_io_uring_enter, ring.fd, 1, 0, 0, 0, 0);
}

static int complete(void)
{
    _Atomic unsigned *head = counter(ring.completions, ring.parameters.cq_off.head);
    _Atomic unsigned *tail = counter(ring.completions, ring.parameters.cq_off.tail);
    struct io_uring_cqe *results = (void *)(ring.completions + ring.parameters.cq_off.cqes);
    while (*head == *tail)
        syscall(SYS_io_uring_enter, ring.fd, 0, 1, IORING_ENTER_GETEVENTS, 0, 0);
    int result = results[*head & (ring.parameters.cq_entries - 1)].res;
    *head = *head + 1;
    return result;
}

/* A file of nines that is read past the page cache, in the directory of the tests. */
static int nines(void)
{
    char path[] = "harmless-XXXXXX", *contents = memset(map(LENGTH), 9, LENGTH);
    int fd = mkostemp(path, O_DIRECT);
    unlink(path);
    if (fd < 0 || pwrite(fd, contents, LENGTH, 0) != (ssize_t)LENGTH) {
        printf("no O_DIRECT here: %s\n", strerrorname_np(errno));
        _exit(SKIPPED);
    }
    munmap(contents, LENGTH);
    return fd;
}

static int is_all(char *start, size_t length, char value)
{
    for (size_t at = 0; at < length; at++)
        if (start[at] != value)
            return 0;
    return 1;
}

/* Memory is registered as a buffer of the ring, parts of it are then protected and unmapped, and the
 * rest of it still is the ring's buffer. */
static int registered_buffer(void)
{
    int fd = nines();
    char *start = map_filled(LENGTH);
    struct iovec buffer = {start, LENGTH};
    open_ring();
    long made = syscall(SYS_io_uring_register, ring.fd, IORING_REGISTER_BUFFERS, &buffer, 1);
    printf("register %s", outcome(made));
    printf(", protect %s", outcome(mprotect(start + MIB, PAGE, PROT_READ)));
    printf(", unmap %s\n", outcome(munmap(start + 5 * MIB, PAGE)));
    for (int part = 0; part < 4; part++) {
        char *target = start + part * SUPERPAGE;
        submit((struct io_uring_sqe){.opcode = IORING_OP_READ_FIXED, .fd = fd,
                                     .addr = (uintptr_t)target, .len = MIB, .buf_index = 0});
        int result = complete();
        printf("part %d: read %d, %s\n", part, result,
               is_all(target, MIB, 9) ? "seen" : "not seen");
    }
    return 0;
}

/* Reads that the program is not done with when it protects the page behind them. */
static int reads_in_flight(void)
{
    int fd = nines(), failed = 0, lost = 0;
    open_ring();
    for (int round = 0; round < 20; round++) {
        char *start = map_filled(LENGTH);
        for (int part = 0; part < 4; part++)
            submit((struct io_uring_sqe){.opcode = IORING_OP_READ, .fd = fd,
                                         .addr = (uintptr_t)start + part * SUPERPAGE,
                                         .len = SUPERPAGE - PAGE});
        for (int part = 1; part <= 4; part++)
            mprotect(start + part * SUPERPAGE - PAGE, PAGE, PROT_READ);
        for (int part = 0; part < 4; part++)
            failed += complete() != SUPERPAGE - PAGE;
        for (int part = 0; part < 4; part++)
            lost += !is_all(start + part * SUPERPAGE, SUPERPAGE - PAGE, 9);
        munmap(start, LENGTH);
    }
    printf("failed %d, lost %d\n", failed, lost);
    return 0;
}

static char *target;
static atomic_int done, failures;
static void *read_on(void *fd)
{
    for (int i = 0; i < 30; i++)
        for (int part = 0; part < 4; part++)
            if (pread(*(int *)fd, target + part * SUPERPAGE, MIB, 0) != (ssize_t)MIB)
                failures++;
    done = 1;
    return 0;
}

/* Another thread's system calls write to memory of which other parts are protected and freed. */
static int system_calls_of_another_thread(void)
{
    int fd = nines(), lost = 0;
    pthread_t thread;
    target = map_filled(LENGTH);
    pthread_create(&thread, 0, read_on, &fd);
    for (size_t at = 0; !done || at < 64 * PAGE; at += PAGE) {
        char *page = target + MIB + at % (LENGTH - MIB);
        if (((page - target) & MIB) == 0)
            continue;
        mprotect(page, PAGE, PROT_READ);
        madvise(page, PAGE, MADV_DONTNEED);
    }
    pthread_join(thread, 0);
    for (int part = 0; part < 4; part++)
        lost += !is_all(target + part * SUPERPAGE, MIB, 9);
    printf("failed %d, lost %d\n", failures, lost);
    return 0;
}

MAIN(CASE(registered_buffer), CASE(reads_in_flight), CASE(system_calls_of_another_thread))
