/* Programs whose gain from superpages is measured beside what `superpage advise` says: scripts/advise-check.
 *
 * programs NAME SECONDS [COUNTER]: prepares, prints "ready", works for SECONDS of CPU time (0: until it is ended), and
 * prints "rate N", the work per second of CPU time. Memory comes from malloc, so that how it is backed is decided
 * outside. COUNTER is a file that holds the work done and the nanoseconds of CPU time at that moment, two 64-bit words. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

static uint64_t state = 88172645463325252ull;

static inline uint64_t draw(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static double cpu(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

static void *get(size_t bytes) {
    void *memory = malloc(bytes);
    if (!memory) {
        perror("malloc");
        exit(1);
    }
    memset(memory, 1, bytes);
    return memory;
}

static volatile uint64_t sink;

/* Independent updates of random words: GUPS over 1 GiB. */
static uint64_t *table;
static void gups_prepare(void) { table = get((size_t)1 << 30); }
static uint64_t gups(void) {
    const uint64_t mask = ((uint64_t)1 << 27) - 1;
    for (int i = 0; i < 1 << 20; i++) {
        uint64_t at = draw();
        table[at & mask] ^= at;
    }
    return 1 << 20;
}

/* Dependent loads: a random cycle through 512 MiB, one node a line. */
struct node { struct node *next; char rest[56]; };
static struct node *nodes, *at_node;
static void chase_prepare(void) {
    const uint64_t count = (512u << 20) / sizeof(struct node);
    nodes = get(count * sizeof *nodes);
    uint32_t *order = get(count * sizeof *order);
    for (uint64_t i = 0; i < count; i++) order[i] = i;
    for (uint64_t i = count - 1; i > 0; i--) {
        uint64_t other = draw() % (i + 1);
        uint32_t swapped = order[i];
        order[i] = order[other], order[other] = swapped;
    }
    for (uint64_t i = 0; i < count; i++) nodes[order[i]].next = &nodes[order[(i + 1) % count]];
    free(order);
    at_node = nodes;
}
static uint64_t chase(void) {
    struct node *at = at_node;
    for (int i = 0; i < 1 << 18; i++) at = at->next;
    at_node = at;
    return 1 << 18;
}

/* A hash table with chains: 4 million small objects, each allocated by itself, found by random keys. */
struct entry { struct entry *next; uint64_t key, value; };
static struct entry **buckets;
enum { ENTRIES = 1 << 22, BUCKETS = 1 << 22 };
static uint64_t spread(uint64_t key) { return key * 0x9e3779b97f4a7c15ull >> 42; }
static void hash_prepare(void) {
    buckets = get(BUCKETS * sizeof *buckets);
    memset(buckets, 0, BUCKETS * sizeof *buckets);
    for (uint64_t key = 0; key < ENTRIES; key++) {
        struct entry *entry = malloc(sizeof *entry);
        entry->key = key, entry->value = key;
        entry->next = buckets[spread(key)];
        buckets[spread(key)] = entry;
    }
}
static uint64_t hash(void) {
    uint64_t sum = 0;
    for (int i = 0; i < 1 << 18; i++) {
        uint64_t key = draw() % ENTRIES;
        struct entry *entry = buckets[spread(key)];
        while (entry->key != key) entry = entry->next;
        sum += entry->value;
    }
    sink = sum;
    return 1 << 18;
}

/* Binary search in a sorted array of 512 MiB. */
static uint64_t *sorted;
enum { SORTED = 1 << 26 };
static void search_prepare(void) {
    sorted = get(SORTED * sizeof *sorted);
    for (uint64_t i = 0; i < SORTED; i++) sorted[i] = i * 3;
}
static uint64_t search(void) {
    uint64_t sum = 0;
    for (int i = 0; i < 1 << 16; i++) {
        uint64_t key = draw() % (SORTED * 3ull), low = 0, high = SORTED;
        while (low < high) {
            uint64_t middle = (low + high) / 2;
            if (sorted[middle] < key) low = middle + 1;
            else high = middle;
        }
        sum += low;
    }
    sink = sum;
    return 1 << 16;
}

/* A sum over 512 MiB in order. */
static double *numbers;
enum { NUMBERS = 1 << 26 };
static void sum_prepare(void) {
    numbers = get(NUMBERS * sizeof *numbers);
    for (uint64_t i = 0; i < NUMBERS; i++) numbers[i] = i;
}
static uint64_t sum(void) {
    double sums[4] = {0};
    for (uint64_t i = 0; i < NUMBERS; i += 4) {
        sums[0] += numbers[i], sums[1] += numbers[i + 1];
        sums[2] += numbers[i + 2], sums[3] += numbers[i + 3];
    }
    sink = sums[0] + sums[1] + sums[2] + sums[3];
    return NUMBERS;
}

/* No memory: arithmetic in registers. */
static void compute_prepare(void) {}
static uint64_t compute(void) {
    uint64_t sum = 0;
    for (int i = 0; i < 1 << 22; i++) sum += draw() * 31 ^ sum >> 3;
    sink = sum;
    return 1 << 22;
}

/* Random updates of 128 KiB: within the caches and the TLB. */
static void small_prepare(void) { table = get(128 << 10); }
static uint64_t small(void) {
    for (int i = 0; i < 1 << 22; i++) {
        uint64_t at = draw();
        table[at & ((16 << 10) - 1)] ^= at;
    }
    return 1 << 22;
}

/* A priority queue of 32 million random words: a random number is taken from the greatest (the hold model, which
 * stays the same for years). */
static uint64_t sift(uint64_t from, uint64_t count) {
    uint64_t value = table[from], steps = 0;
    for (uint64_t child; (child = 2 * from + 1) < count; from = child, steps++) {
        if (child + 1 < count && table[child + 1] > table[child]) child++;
        if (table[child] <= value) break;
        table[from] = table[child];
    }
    table[from] = value;
    return steps;
}
static void queue_prepare(void) {
    table = get((size_t)SORTED / 2 * sizeof *table);
    for (uint64_t i = 0; i < SORTED / 2; i++) table[i] = (1ull << 63) + (draw() >> 8);
    for (uint64_t at = SORTED / 4; at-- > 0;) sift(at, SORTED / 2);
}
static uint64_t queue(void) {
    uint64_t steps = 0;
    for (int i = 0; i < 1 << 14; i++) {
        table[0] -= draw() >> 8;
        steps += sift(0, SORTED / 2);
    }
    sink = steps;
    return 1 << 14;
}

#include "unseen.c"

static const struct { const char *name; void (*prepare)(void); uint64_t (*work)(void); } all[] = {
    {"gups", gups_prepare, gups}, {"chase", chase_prepare, chase}, {"hash", hash_prepare, hash},
    {"search", search_prepare, search}, {"sum", sum_prepare, sum}, {"compute", compute_prepare, compute},
    {"small", small_prepare, small}, {"queue", queue_prepare, queue},
    {"btree", btree_prepare, btree}, {"lru", lru_prepare, lru}, {"transpose", transpose_prepare, transpose},
    {"parse", parse_prepare, parse}, {"graph", graph_prepare, graph}, {"matrix", matrix_prepare, matrix},
};

static volatile uint64_t *counter_at(const char *path) {
    static volatile uint64_t none[2];
    if (!path) return none;
    int file = open(path, O_RDWR);
    void *at = mmap(NULL, 16, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (at == MAP_FAILED) {
        perror(path);
        exit(1);
    }
    return at;
}

int main(int argc, char **argv) {
    volatile uint64_t *counter = counter_at(argc == 4 ? argv[3] : NULL);
    for (size_t i = 0; argc >= 3 && i < sizeof all / sizeof *all; i++) {
        if (strcmp(argv[1], all[i].name)) continue;
        double seconds = atof(argv[2]);
        all[i].prepare();
        all[i].work();
        puts("ready");
        fflush(stdout);
        double begun = cpu(), now = begun;
        uint64_t done = 0;
        while (seconds == 0 || now - begun < seconds) {
            done += all[i].work(), now = cpu();
            counter[0] = done, counter[1] = (now - begun) * 1e9;
        }
        printf("rate %.0f\n", done / (now - begun));
        return 0;
    }
    fprintf(stderr, "usage: programs NAME SECONDS [COUNTER]\n");
    return 2;
}
