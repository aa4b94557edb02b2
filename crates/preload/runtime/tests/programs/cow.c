/* A child that writes every page of the memory that it shares with its parent: `cow MIB`. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int count, char **words)
{
    size_t bytes = (size_t)atoi(count > 1 ? words[1] : "64") << 20;
    char *memory = malloc(bytes);
    if (!memory)
        return 2;
    memset(memory, 1, bytes);
    pid_t child = fork();
    if (child == 0) {
        memset(memory, 2, bytes);
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    printf("%d %d\n", (int)child, WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    return 0;
}
