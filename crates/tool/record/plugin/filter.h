/*
 * Combines accesses into records: page, read or write, number of accesses. Each thread fills its own buffer with its
 * consecutive accesses. The filter restarts with every buffer, so that its rule holds for the concatenation of all
 * buffers. (crates/shared/trace/src/filter.rs has the rule; tests compare both implementations.)
 */

#define PAGE_BITS 12
#define RECORDS 7168 /* 56 KiB, so that three buffers fit into the default socket buffer. */
#define CLASSES 4096

/* A record: bit 0 write, 44 bits of page number (57-bit addresses), 19 bits of count. */
#define COUNT_ONE (1ull << 45)
#define COUNT_MASK (~0ull << 45)
#define NO_PAGE (~0ull)

struct records {
    uint64_t *last; /* The last record. */
    uint64_t page;  /* Page of the last record: page << 1 | writes. */
    uint32_t count;
    uint64_t words[RECORDS];
};

struct thread {
    struct thread *next;
    pthread_mutex_t sending; /* Held while the buffer is sent. */
    uint64_t instructions;   /* Executed and not yet reported. */
    struct records data;
    struct records code;
    /* For the set-MRU filter: the most recently used page (as in `page` above) and region of
     * each class. */
    uint64_t pages[CLASSES];
    uint64_t regions[CLASSES];
    /* Arguments of the current system call. */
    uint64_t call[6];
};

/* Number of classes of base pages and regions; 0: same-page filter. */
static uint64_t base_classes, region_classes;
static bool every; /* No filter. */
static bool fetches;

static __thread struct thread *self __attribute__((tls_model("initial-exec")));
static struct thread *threads;
static pthread_mutex_t threads_lock = PTHREAD_MUTEX_INITIALIZER;

/* Instruction counter of a single-threaded process: QEMU increments it inline, without a callback. */
static uint64_t inline_count, reported_count;
static pthread_mutex_t inline_lock = PTHREAD_MUTEX_INITIALIZER;
static bool parallel;

static void records_clear(struct records *records) {
    records->count = 0;
    records->page = NO_PAGE;
}

static void thread_clear(struct thread *t) {
    records_clear(&t->data);
    if (base_classes) {
        memset(t->pages, 0xff, base_classes * sizeof *t->pages);
        memset(t->regions, 0xff, region_classes * sizeof *t->regions);
    }
}

static struct thread *thread_new(void) {
    struct thread *t = calloc(1, sizeof *t);
    if (!t)
        abort();
    pthread_mutex_init(&t->sending, NULL);
    thread_clear(t);
    records_clear(&t->code);
    pthread_mutex_lock(&threads_lock);
    t->next = threads;
    threads = t;
    pthread_mutex_unlock(&threads_lock);
    self = t;
    return t;
}

static inline struct thread *thread_self(void) {
    struct thread *t = self;
    return __builtin_expect(t != NULL, 1) ? t : thread_new();
}

static uint64_t instructions_take(struct thread *t) {
    uint64_t sum = t->instructions;
    t->instructions = 0;
    pthread_mutex_lock(&inline_lock);
    sum += inline_count - reported_count;
    reported_count = inline_count;
    pthread_mutex_unlock(&inline_lock);
    return sum;
}

/* Sends a thread's buffers. */
static void thread_send(struct thread *t) {
    pthread_mutex_lock(&t->sending);
    if (t->data.count) {
        send_frame(ACCESSES, instructions_take(t), t->data.words, t->data.count * sizeof *t->data.words);
        thread_clear(t);
    }
    if (t->code.count) {
        send_frame(FETCHES, instructions_take(t), t->code.words, t->code.count * sizeof *t->code.words);
        records_clear(&t->code);
    }
    pthread_mutex_unlock(&t->sending);
}

/* Sends the other threads' buffers at process exit. Those threads may still be running; their later accesses are
 * lost. */
static void threads_send(void) {
    pthread_mutex_lock(&threads_lock);
    for (struct thread *t = threads; t; t = t->next)
        if (t != self)
            thread_send(t);
    pthread_mutex_unlock(&threads_lock);
}

static void thread_end(void) {
    struct thread *t = self;
    if (!t)
        return;
    thread_send(t);
    pthread_mutex_lock(&threads_lock);
    struct thread **at = &threads;
    while (*at && *at != t)
        at = &(*at)->next;
    if (*at)
        *at = t->next;
    pthread_mutex_unlock(&threads_lock);
    self = NULL;
    free(t);
}

/* Called in a forked child, which has one thread. The parent sends the buffers of the other
 * threads. */
static void threads_forked(void) {
    struct thread *own = thread_self();
    threads = own;
    own->next = NULL;
    own->instructions = 0;
    reported_count = inline_count;
    pthread_mutex_init(&threads_lock, NULL);
    pthread_mutex_init(&inline_lock, NULL);
    pthread_mutex_init(&channel_lock, NULL);
    pthread_mutex_init(&own->sending, NULL);
    thread_clear(own);
    records_clear(&own->code);
}

static void add(struct thread *t, struct records *to, uint64_t page) {
    if (__builtin_expect(to->count == RECORDS, 0)) {
        thread_send(t);
        /* The filter restarted, so this access is the first of its class. */
        if (to == &t->data && base_classes) {
            t->pages[(page >> 1) & (base_classes - 1)] = page;
            t->regions[(page >> 10) & (region_classes - 1)] = page >> 10;
        }
    }
    to->page = page;
    to->last = &to->words[to->count++];
    *to->last = page | COUNT_ONE;
}

/* Adds an access to the last record, or to another record of the page if the count is full. */
static inline void count_on(struct thread *t, struct records *to) {
    if (__builtin_expect(*to->last < COUNT_MASK, 1))
        *to->last += COUNT_ONE;
    else
        add(t, to, *to->last & ~COUNT_MASK);
}

static inline bool covers(uint64_t last, uint64_t page) {
    return last == page || last == (page | 1);
}

/* Records an access to a page; `page` is page << 1 | writes. */
static void record_access(struct thread *t, uint64_t page) {
    struct records *to = &t->data;
    if (!base_classes) {
        if (!every && covers(to->page, page))
            count_on(t, to);
        else
            add(t, to, page);
        return;
    }
    uint64_t *class = &t->pages[(page >> 1) & (base_classes - 1)];
    uint64_t region = page >> 10;
    uint64_t *of_region = &t->regions[region & (region_classes - 1)];
    bool hit = *of_region == region && covers(*class, page);
    *of_region = region;
    if (hit) {
        count_on(t, to);
        return;
    }
    *class = page;
    add(t, to, page);
}

static void on_access(unsigned int vcpu, qemu_plugin_meminfo_t info, uint64_t address, void *data) {
    (void)vcpu;
    (void)data;
    struct thread *t = thread_self();
    uint64_t page = address >> PAGE_BITS;
    uint64_t offset = address & ((1 << PAGE_BITS) - 1);
    /* Fast path: an access to the last page, which is already recorded as written. */
    bool crosses = offset > (1 << PAGE_BITS) - 64 &&
                   offset + (1u << qemu_plugin_mem_size_shift(info)) > 1 << PAGE_BITS;
    if (t->data.page == (page << 1 | 1) && !crosses && !base_classes && !every) {
        count_on(t, &t->data);
        return;
    }
    uint64_t writes = qemu_plugin_mem_is_store(info);
    /* The kernel's vsyscall page is not representable, and no mapping contains it. */
    if (__builtin_expect(page >> 44, 0))
        return;
    record_access(t, page << 1 | writes);
    if (__builtin_expect(crosses, 0))
        record_access(t, (page + 1) << 1 | writes);
}

/* A translated block, for recording instruction fetches. */
struct block {
    uint64_t instructions;
    uint64_t first, last; /* The one or two pages of the block. */
};

static void record_fetch(struct thread *t, uint64_t page) {
    if (t->code.page == page << 1)
        count_on(t, &t->code);
    else
        add(t, &t->code, page << 1);
}

static void on_block(unsigned int vcpu, void *data) {
    (void)vcpu;
    const struct block *block = data;
    struct thread *t = thread_self();
    t->instructions += block->instructions;
    if (fetches) {
        record_fetch(t, block->first);
        if (block->last != block->first)
            record_fetch(t, block->last);
    }
}
