/* Four threads write 1000 pages each, eight times. */
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

static char *memory;

static void *work(void *number) {
    volatile char *own = memory + ((long)number * 1000 << 12);
    for (int round = 0; round < 8; round++)
        for (int i = 0; i < 1000; i++)
            own[(long)i << 12] = 1;
    return NULL;
}

int main(void) {
    memory = mmap((void *)0x10000000000, 4000l << 12, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    pthread_t threads[4];
    for (long i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, work, (void *)i);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
