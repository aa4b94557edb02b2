/* `plugin LIBRARY`: loads it. Compiled with -DPLUGIN it is the library, whose constructor waits for a thread that it made:
 * whoever loads it holds the loader's lock meanwhile. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>

#ifdef PLUGIN
static sem_t ready;

static void *work(void *nothing)
{
    pthread_attr_t attributes;
    pthread_getattr_np(pthread_self(), &attributes);
    pthread_attr_destroy(&attributes);
    pthread_detach(pthread_self());
    sem_post(&ready);
    return nothing;
}

__attribute__((constructor)) static void start(void)
{
    pthread_t thread;
    sem_init(&ready, 0, 0);
    pthread_create(&thread, 0, work, 0);
    sem_wait(&ready);
}
#else
static void *nothing(void *it) { return it; }

int main(int count, char **arguments)
{
    (void)count;
    dlopen("no-such-library.so", RTLD_NOW);
    pthread_t thread;
    pthread_create(&thread, 0, nothing, 0);
    pthread_join(thread, 0);
    printf("error kept: %d\n", dlerror() != 0);
    printf("loaded: %d\n", dlopen(arguments[1], RTLD_NOW) != 0);
}
#endif
