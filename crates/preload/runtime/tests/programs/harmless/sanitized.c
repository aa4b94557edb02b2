/* A correct program of two threads and a child, to be built with a sanitizer or run under valgrind. */
#include "common.h"
#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *shared;

static void *work(void *unused)
{
    for (int i = 1; i < 50; i++) {
        char *own = calloc(i, 1000);
        pthread_mutex_lock(&lock);
        shared = realloc(shared, i * 5000);
        shared[i * 5000 - 1] = own[0];
        pthread_mutex_unlock(&lock);
        free(own);
    }
    return unused;
}

int main(void)
{
    pthread_t threads[2];
    setvbuf(stdout, 0, _IONBF, 0);
    for (int i = 0; i < 2; i++)
        pthread_create(threads + i, 0, work, 0);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], 0);
    free(shared);
    char *large = memset(malloc(40 * MIB), 1, 40 * MIB);
    free(large);
    munmap(memset(map(8 * MIB), 1, 8 * MIB), 8 * MIB);
    printf("done\n");
    return 0;
}
