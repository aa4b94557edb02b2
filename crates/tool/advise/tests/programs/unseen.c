/* Programs that were written after the model's numbers were chosen, and are no reason to change them: included by
 * programs.c. */

/* Look-ups of random keys in a tree of nodes of 16 keys, 16 million keys. */
enum { FANOUT = 16, KEYS = 1 << 24 };
struct branch { uint32_t keys[FANOUT]; struct branch *below[FANOUT]; };
static struct branch *top;
static struct branch *grown(uint32_t first, uint32_t each) {
    struct branch *branch = malloc(sizeof *branch);
    for (uint32_t i = 0; i < FANOUT; i++) {
        branch->keys[i] = first + i * each;
        branch->below[i] = each > 1 ? grown(first + i * each, each / FANOUT) : NULL;
    }
    return branch;
}
static void btree_prepare(void) { top = grown(0, KEYS / FANOUT); }
static uint64_t btree(void) {
    uint64_t sum = 0;
    for (int i = 0; i < 1 << 16; i++) {
        uint32_t key = draw() % KEYS;
        for (struct branch *at = top; at;) {
            uint32_t place = 0;
            while (place + 1 < FANOUT && at->keys[place + 1] <= key) place++;
            sum += at->keys[place];
            at = at->below[place];
        }
    }
    sink = sum;
    return 1 << 16;
}

/* A cache of 1.5 million values of 200 bytes: found by a hash table, and moved to the front of a list; low keys more
 * often. */
enum { CACHED = 3 << 19 };
struct cached { struct cached *before, *after, *chain; uint64_t key; char value[200]; };
static struct cached *front, **slots;
static void lru_prepare(void) {
    slots = get(BUCKETS * sizeof *slots);
    memset(slots, 0, BUCKETS * sizeof *slots);
    front = get(sizeof *front);
    front->before = front->after = front;
    for (uint64_t key = 0; key < CACHED; key++) {
        struct cached *one = get(sizeof *one);
        one->key = key, one->chain = slots[spread(key)], slots[spread(key)] = one;
        one->after = front->after, one->before = front;
        front->after->before = one, front->after = one;
    }
}
static uint64_t lru(void) {
    uint64_t sum = 0;
    for (int i = 0; i < 1 << 17; i++) {
        uint64_t key = draw() % CACHED, other = draw() % CACHED;
        if (other < key) key = other;
        struct cached *one = slots[spread(key)];
        while (one->key != key) one = one->chain;
        one->before->after = one->after, one->after->before = one->before;
        one->after = front->after, one->before = front;
        front->after->before = one, front->after = one;
        sum += one->value[key % 200];
    }
    sink = sum;
    return 1 << 17;
}

/* Transposition of a matrix of 5000 by 5000 numbers, row by row. */
enum { SIDE = 5000 };
static double *from, *to;
static void transpose_prepare(void) {
    from = get(sizeof *from * SIDE * SIDE), to = get(sizeof *to * SIDE * SIDE);
}
static uint64_t transpose(void) {
    static int row;
    for (int rows = 0; rows < 50; rows++, row = (row + 1) % SIDE)
        for (int column = 0; column < SIDE; column++)
            to[(size_t)column * SIDE + row] = from[(size_t)row * SIDE + column];
    return 50;
}

/* Words, numbers and depth of a text of 256 MiB, byte by byte. */
static char *text;
enum { TEXT = 256 << 20 };
static void parse_prepare(void) {
    static const char *parts[] = {"{\"name\": \"superpage\", ", "\"size\": 2097152, ", "\"list\": [1, 22, 333]}, ", "\n  "};
    text = get(TEXT);
    for (size_t at = 0; at < TEXT - 64;) {
        const char *part = parts[draw() % 4];
        memcpy(text + at, part, strlen(part));
        at += strlen(part);
    }
}
static uint64_t parse(void) {
    static size_t at;
    uint64_t words = 0, numbers = 0, depth = 0;
    size_t end = at + (8 << 20);
    for (; at < end; at++) {
        switch (text[at]) {
        case '"':
            while (text[++at] != '"' && at < end) {}
            words++;
            break;
        case '{': case '[': depth++; break;
        case '}': case ']': depth--; break;
        case '0' ... '9':
            for (numbers += text[at] - '0'; text[at + 1] >= '0' && text[at + 1] <= '9'; at++) {}
        }
    }
    if (at >= TEXT - (9 << 20)) at = 0;
    sink = words + numbers + depth;
    return 8 << 20;
}

/* Sums over the neighbours of each of 8 million vertices, eight random ones each. */
enum { VERTICES = 1 << 23, EDGES = 8 };
static uint32_t *edges;
static float *ranks;
static void graph_prepare(void) {
    edges = get(sizeof *edges * VERTICES * EDGES), ranks = get(sizeof *ranks * VERTICES);
    for (size_t i = 0; i < (size_t)VERTICES * EDGES; i++) edges[i] = draw() % VERTICES;
}
static uint64_t graph(void) {
    static uint32_t vertex;
    for (int i = 0; i < 1 << 17; i++, vertex = (vertex + 1) % VERTICES) {
        float sum = 0;
        for (int edge = 0; edge < EDGES; edge++) sum += ranks[edges[(size_t)vertex * EDGES + edge]];
        ranks[vertex] = 0.15f + 0.1f * sum;
    }
    return 1 << 17;
}

/* Products of matrices of 256 by 256 numbers. */
enum { WIDE = 256 };
static double *left_matrix, *right_matrix, *product;
static void matrix_prepare(void) {
    left_matrix = get(8 * WIDE * WIDE), right_matrix = get(8 * WIDE * WIDE), product = get(8 * WIDE * WIDE);
}
static uint64_t matrix(void) {
    memset(product, 0, 8 * WIDE * WIDE);
    for (int i = 0; i < WIDE; i++)
        for (int k = 0; k < WIDE; k++)
            for (int j = 0; j < WIDE; j++)
                product[i * WIDE + j] += left_matrix[i * WIDE + k] * right_matrix[k * WIDE + j];
    return 1;
}
