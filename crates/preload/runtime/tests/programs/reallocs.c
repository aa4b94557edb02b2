/* What an allocator answers to `realloc` in unusual words. Prints the same under each library that leaves its blocks to it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void)
{
    char *block = memset(malloc(100), 7, 100);
    block = reallocarray(block, 50, 4);
    printf("%d %d", block[0], block[99]);
    char *none = realloc(block, 0);
    printf(" %d", none != 0);
    if (none) free(none);
    printf(" %d\n", reallocarray(0, (size_t)-1, 16) != 0);
}
