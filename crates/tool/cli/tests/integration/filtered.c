/* Allocates and frees under a seccomp filter that allows what malloc calls natively in a program without threads, and ends the
 * process for anything else: `filtered BYTES MIB` uses MIB of objects of BYTES. */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

int main(int count, char **words)
{
    size_t size = atol(words[1]), number = ((size_t)atol(words[2]) << 20) / size;
    static const int allowed[] = { SYS_brk, SYS_mmap, SYS_munmap, SYS_mremap, SYS_write, SYS_fstat, SYS_newfstatat, SYS_exit_group };
    enum { ALLOWED = sizeof allowed / sizeof *allowed };
    struct sock_filter filter[2 * ALLOWED + 2] = { BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0) };
    int at = 1;
    for (int i = 0; i < ALLOWED; i++) {
        filter[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, allowed[i], 0, 1);
        filter[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    }
    filter[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    struct sock_fprog program = { at, filter };
    char **objects = calloc(number, sizeof *objects);
    for (size_t i = 0; i < number / 2; i++)
        objects[i] = memset(malloc(size), i, size);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        return 3;
    for (size_t i = number / 2; i < number; i++)
        objects[i] = memset(malloc(size), i, size);
    for (size_t i = 0; i < number; i += 2)
        objects[i] = realloc(objects[i], size * 3 / 2);
    for (size_t i = 0; i < number; i++) {
        if (objects[i][size - 1] != (char)i)
            return 4;
        free(objects[i]);
    }
    puts("fine");
    return 0;
}
