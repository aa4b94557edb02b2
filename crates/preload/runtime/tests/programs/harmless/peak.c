/* peak PROGRAM ARGUMENTS: runs it with HARMLESS_PRELOAD as its LD_PRELOAD, passes its output and
 * status on, and prints the peak of its resident memory and its children's, in KiB, as the last line.
 * This program is small, because a new program's peak starts with that of the process it replaces. */
#include "common.h"
#include <sys/resource.h>

int main(int count, char **arguments)
{
    struct rusage usage;
    int status;
    pid_t child = count > 1 ? fork() : -1;
    if (!child) {
        if (getenv("HARMLESS_PRELOAD"))
            setenv("LD_PRELOAD", getenv("HARMLESS_PRELOAD"), 1);
        execvp(arguments[1], arguments + 1);
        _exit(127);
    }
    if (wait4(child, &status, 0, &usage) != child)
        return 126;
    printf("peak %ld\n", usage.ru_maxrss);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
