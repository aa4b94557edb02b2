/* Linked for executable stacks, as a compiler does for functions within functions of C whose address is taken. The main
 * thread runs code on its stack, and so do others: natively all may. */
#include "common.h"
#include <pthread.h>

/* Returns. */
#if defined(__x86_64__)
static const unsigned code[] = {0xc3};
#elif defined(__aarch64__)
static const unsigned code[] = {0xd65f03c0};
#endif

static void *runs_code(void *name)
{
    unsigned here[4];
    memcpy(here, code, sizeof code);
    __builtin___clear_cache((char *)here, (char *)(here + 4));
    ((void (*)(void))here)();
    printf("%s ran it\n", (char *)name);
    return 0;
}

int main(void)
{
    pthread_t thread;
    setvbuf(stdout, 0, _IONBF, 0);
    runs_code("main thread");
    for (int i = 0; i < 3; i++)
        if (!pthread_create(&thread, 0, runs_code, "thread"))
            pthread_join(thread, 0);
    return churn();
}
