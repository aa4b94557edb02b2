/* pool_plan KIND MIB CHILDREN [pool]: makes MIB of memory, touches a tenth of shared memory and all of the heap, forks
 * children that map the same, keeps the memory for KEEP_SECONDS (1), and prints "fine". With `pool` it asks for hugetlb
 * pages itself. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/memfd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char *segment(size_t size, int pool)
{
    int id = shmget(IPC_PRIVATE, size, IPC_CREAT | 0600 | (pool ? SHM_HUGETLB | 21 << MAP_HUGE_SHIFT : 0));
    char *memory = id < 0 ? (char *)-1 : shmat(id, NULL, 0);
    if (id >= 0)
        shmctl(id, IPC_RMID, NULL);
    return memory;
}

static char *object(const char *kind, size_t size, int pool)
{
    int file;
    if (!strcmp(kind, "memfd")) {
        file = memfd_create("plan", pool ? MFD_HUGETLB | MFD_HUGE_2MB : 0);
        if (pool) /* hugetlb files have whole pages */
            size = (size + (2 << 20) - 1) >> 21 << 21;
    } else {
        char name[64];
        snprintf(name, sizeof name, "/superpage-plan-%d", getpid());
        file = shm_open(name, O_CREAT | O_EXCL | O_RDWR, 0600);
        shm_unlink(name);
    }
    if (file < 0 || ftruncate(file, size))
        return MAP_FAILED;
    return mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
}

static char *anonymous(size_t size, int pool)
{
    int flags = MAP_SHARED | MAP_ANONYMOUS | (pool ? MAP_HUGETLB | 21 << MAP_HUGE_SHIFT : 0);
    return mmap(NULL, size, PROT_READ | PROT_WRITE, flags, -1, 0);
}

static void heap(size_t size)
{
    for (size_t done = 0; done < size; done += 1000) {
        char *memory = malloc(1000);
        if (!memory)
            exit(4);
        memset(memory, 1, 1000);
    }
}

static void rest(void)
{
    const char *seconds = getenv("KEEP_SECONDS");
    struct timespec rest = {seconds ? atol(seconds) : 1, 0};
    nanosleep(&rest, NULL);
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return 2;
    const char *kind = argv[1];
    size_t size = (size_t)atol(argv[2]) << 20;
    int children = atoi(argv[3]), pool = argc > 4;
    if (!strcmp(kind, "heap")) {
        heap(size);
    } else if (!strcmp(kind, "sparse")) {
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
        char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, flags, -1, 0);
        if (memory == MAP_FAILED) {
            perror(kind);
            return 3;
        }
        memset(memory, 1, 4 << 20);
    } else {
        char *memory = !strcmp(kind, "sysv")        ? segment(size, pool)
                       : !strcmp(kind, "anonymous") ? anonymous(size, pool)
                                                    : object(kind, size, pool);
        if (memory == MAP_FAILED) {
            perror(kind);
            return 3;
        }
        memset(memory, 1, size / 10);
    }
    for (int child = 0; child < children; child++)
        if (!fork()) {
            rest();
            _exit(0);
        }
    rest();
    while (children-- > 0)
        wait(NULL);
    puts("fine");
    return 0;
}
