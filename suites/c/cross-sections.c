/* Lookups as XSBench makes them: a binary search in a sorted grid of energies, then a row of indices and the cross
 * sections of several nuclides, all at random. About 300 MiB. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { NUCLIDES = 64, POINTS = 8192, GRID = NUCLIDES * POINTS, CHANNELS = 5, MATERIAL = 12 };

static uint64_t state = 1;

static double random_unit(void) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (double)(state >> 11) / 9007199254740992.0;
}

int main(int argc, char **argv) {
    long lookups = argc > 1 ? atol(argv[1]) : 500000;
    double *energy = malloc(GRID * sizeof *energy);
    int32_t *index = malloc((size_t)GRID * NUCLIDES * sizeof *index);
    double *section = malloc((size_t)GRID * CHANNELS * sizeof *section);
    if (!energy || !index || !section) return 1;
    for (long i = 0; i < GRID; i++) {
        energy[i] = (double)i / GRID;
        for (int n = 0; n < NUCLIDES; n++)
            index[(size_t)i * NUCLIDES + n] = (int32_t)(i * POINTS / GRID);
        for (int c = 0; c < CHANNELS; c++) section[(size_t)i * CHANNELS + c] = (double)(i % 97 + c);
    }
    double sum = 0;
    for (long l = 0; l < lookups; l++) {
        double wanted = random_unit();
        long low = 0, high = GRID;
        while (high - low > 1) {
            long middle = (low + high) / 2;
            if (energy[middle] > wanted) high = middle; else low = middle;
        }
        for (int m = 0; m < MATERIAL; m++) {
            int nuclide = (int)(random_unit() * NUCLIDES);
            long point = (long)nuclide * POINTS + index[(size_t)low * NUCLIDES + nuclide];
            for (int c = 0; c < CHANNELS; c++) sum += section[(size_t)point * CHANNELS + c] * wanted;
        }
    }
    printf("%.6e\n", sum);
    free(energy); free(index); free(section);
    return 0;
}
