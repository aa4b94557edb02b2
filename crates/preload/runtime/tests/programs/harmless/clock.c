/* A library to preload, whose clock_gettime allocates at its first call, as libfaketime's does (a
 * dlsym that fails allocates its message). On base pages every program runs with it. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static char *memory;

int clock_gettime(clockid_t clock, struct timespec *time)
{
    if (!memory)
        memory = malloc(100);
    return syscall(SYS_clock_gettime, clock, time);
}

static __attribute__((destructor)) void end(void)
{
    free(memory);
}
