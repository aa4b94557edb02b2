/* Allocates through libc and by itself. `instrumented twice` frees a block twice, which every tool that it is
 * built with or run by notices; `instrumented maps` says whether this project's library is in the process. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
    char *large = malloc(64 << 20), *copy = strdup("done");
    memset(large, 1, 64 << 20);
    free(large);
    if (argc > 1 && strcmp(argv[1], "maps") == 0) {
        char line[4096];
        int inside = 0;
        FILE *maps = fopen("/proc/self/maps", "r");
        while (maps && fgets(line, sizeof line, maps))
            inside |= strstr(line, "libsuperpage.so") != NULL;
        if (maps)
            fclose(maps);
        puts(inside ? "inside" : "outside");
        free(copy);
        return 0;
    }
    puts(copy);
    fflush(stdout);
    free(copy);
    char *volatile again = copy;
    if (argc > 1 && strcmp(argv[1], "twice") == 0)
        free(again);
    return 0;
}
