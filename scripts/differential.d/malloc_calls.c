/* A fuzzer of malloc and its relatives.
 *
 *   malloc_calls --seed N [--calls N] [--threads N] [--log]
 *
 * Blocks of 0 bytes to 24 MiB are allocated by every function that can, grown, shrunk, handed to other threads and freed;
 * what they hold, how they are aligned, how much of them can be used and errno are checked. Children verify their copies,
 * allocate and free. Wrong frees are made in children: how those end is a result like any other. The hash over all results
 * is the verdict, as in memory_calls.c; the block's addresses and exact usable sizes are not part of it. */
#include "fuzz.h"

#include <malloc.h>
#include <sys/resource.h>

#define BLOCKS 192

struct block {
  unsigned char *at;
  size_t size;
  uint64_t token;
};

struct worker {
  struct block block[BLOCKS];
  uint64_t random, token, calls;
  size_t held;
  int depth;
  bool alone;
  struct log log;
  char name[24];
};

/* Where threads leave blocks for each other: what is taken is checked and freed by whoever takes it. */
static struct block exchange[64];
static pthread_mutex_t exchange_lock = PTHREAD_MUTEX_INITIALIZER;

static size_t any_size(struct worker *w) {
  unsigned kind = below(&w->random, 1000);
  if (kind < 500) return below(&w->random, 600);
  if (kind < 800) return below(&w->random, 9000);
  if (kind < 940) return below(&w->random, 300000);
  if (kind < 990) return below(&w->random, 5 << 20);
  size_t supers = (1 + below(&w->random, 12)) * (2UL << 20);
  return supers + below(&w->random, 3) * 16 - 16;
}

/* All of a small block, the ends and some of the middle of a large one. */
static size_t stride(size_t size) { return size > 65536 ? 4001 : size > 2048 ? 61 : 1; }

static unsigned char byte_of(uint64_t token, size_t at) { return (unsigned char)((token + at) * 0x9e3779b97f4a7c15 >> 56); }

static void fill(struct block *b) {
  for (size_t i = 0; i < b->size; i += stride(b->size)) b->at[i] = byte_of(b->token, i);
  if (b->size) b->at[b->size - 1] = byte_of(b->token, b->size - 1);
}

static void verify(struct worker *w, const struct block *b, size_t size, size_t step, const char *after) {
  for (size_t i = 0; i < size; i += step)
    if (b->at[i] != byte_of(b->token, i))
      mismatch(&w->log, "%s: byte %zu of a block of %zu changed", after, i, b->size);
}

static void check(struct worker *w, const struct block *b, const char *after) {
  verify(w, b, b->size, stride(b->size), after);
  if (b->size && b->at[b->size - 1] != byte_of(b->token, b->size - 1))
    mismatch(&w->log, "%s: the last byte of a block of %zu changed", after, b->size);
  if (malloc_usable_size(b->at) < b->size) mismatch(&w->log, "%s: usable size of a block of %zu is less", after, b->size);
}

static void give_back(struct worker *w, struct block *b, const char *after) {
  check(w, b, after);
  errno = 4711;
  free(b->at);
  if (errno != 4711) mismatch(&w->log, "free changed errno");
  b->at = NULL;
}

/* With threads a request that was met after all may leave ENOMEM of an arena that was full. */
static bool many;
static int error_of(void *got) { return got && many ? 0 : errno; }

static void allocate(struct worker *w, struct block *b) {
  size_t size = any_size(w), alignment = 16;
  unsigned how = below(&w->random, 20);
  const char *name = "malloc";
  errno = 0;
  if (how < 9) {
    b->at = malloc(size);
  } else if (how < 13) {
    name = "calloc";
    b->at = calloc(size / 8 + 1, 8);
    size = (size / 8 + 1) * 8;
  } else if (how < 15) {
    name = "posix_memalign";
    alignment = 8UL << below(&w->random, 19);
    void *got = NULL;
    int result = posix_memalign(&got, alignment, size);
    b->at = result ? NULL : got;
  } else if (how < 17) {
    name = "aligned_alloc";
    alignment = 16UL << below(&w->random, 18);
    b->at = aligned_alloc(alignment, size);
  } else if (how == 17) {
    name = "memalign";
    alignment = 16UL << below(&w->random, 10);
    b->at = memalign(alignment, size);
  } else if (how == 18) {
    name = "valloc";
    alignment = PAGE;
    b->at = below(&w->random, 2) ? valloc(size) : pvalloc(size);
  } else {
    name = "reallocarray";
    b->at = reallocarray(NULL, size / 16 + 1, 16);
    size = (size / 16 + 1) * 16;
  }
  note(&w->log, "%s %zu alignment %zu %s errno %d", name, size, alignment, b->at ? "ok" : "null", error_of(b->at));
  if (!b->at) return;
  if ((uintptr_t)b->at % alignment) mismatch(&w->log, "%s: not aligned to %zu", name, alignment);
  if (!strcmp(name, "calloc"))
    for (size_t i = 0; i < size; i += stride(size))
      if (b->at[i]) mismatch(&w->log, "calloc: byte %zu of %zu is not zero", i, size);
  b->size = size;
  b->token = ++w->token;
  fill(b);
  w->held += size;
}

static void resize(struct worker *w, struct block *b) {
  size_t size = any_size(w) + 1, old = b->size;
  check(w, b, "before realloc");
  size_t step = stride(old);
  errno = 0;
  unsigned char *got = below(&w->random, 4) ? realloc(b->at, size) : reallocarray(b->at, size, 1);
  note(&w->log, "realloc %zu to %zu %s errno %d", old, size, got ? "ok" : "null", error_of(got));
  if (!got) return;
  b->at = got;
  b->size = size;
  verify(w, b, old < size ? old : size, step, "realloc");
  w->held += size - old;
  fill(b);
}

/* glibc frees it, and there is no block of 0 bytes. */
static void to_nothing(struct worker *w, struct block *b) {
  check(w, b, "before realloc to nothing");
  errno = 0;
  void *volatile nothing = realloc(b->at, 0);
  note(&w->log, "realloc %zu to nothing: %s errno %d", b->size, nothing ? "memory" : "null", errno);
  w->held -= b->size;
  b->at = NULL;
}

/* Requests that cannot be met. */
static void impossible(struct worker *w) {
  void *got = NULL;
  volatile size_t most = SIZE_MAX; /* or the compiler answers */
  errno = 0;
  int result = 0;
  unsigned how = below(&w->random, 9);
  switch (how) {
    case 0: got = malloc(most); break;
    case 1: got = malloc(most / 2 + 1); break;
    case 2: got = calloc(most / 2, 3); break;
    case 3: got = malloc(1UL << 50); break;
    case 4: got = reallocarray(NULL, most / 4, 8); break;
    case 5: result = posix_memalign(&got, 24, 100); break;
    case 6: result = posix_memalign(&got, 4, 100); break;
    case 7: got = aligned_alloc(64, most - 128); break;
    default: got = memalign(most / 2 + 2, 16); break;
  }
  note(&w->log, "impossible %u: %s result %d errno %d", how, got ? "memory" : "null", result, errno);
  if (got) mismatch(&w->log, "a request that cannot be met was");
}

static void quiet(void) {
  if (!freopen("/dev/null", "w", stderr)) _exit(90);
  struct rlimit none = {0, 0};
  setrlimit(RLIMIT_CORE, &none);
  signal(SIGSEGV, SIG_DFL);
  signal(SIGBUS, SIG_DFL);
}

/* glibc aborts where it notices; a child tries. */
static void wrong_free(struct worker *w) {
  unsigned how = below(&w->random, 8);
  static const size_t sizes[] = {24, 600, 3000, 70000, 140000, 1 << 20};
  size_t size = sizes[below(&w->random, 6)];
  pid_t child = fork();
  if (child < 0) return;
  if (child == 0) {
    quiet();
    alarm(50);
    char *volatile a = malloc(size), *volatile b = malloc(size), *volatile c = malloc(size);
    char on_stack[256] __attribute__((aligned(16))) = {0};
    /* What malloc takes for a header is the same in every run. */
    memset(a, 0, size), memset(b, 0, size), memset(c, 0, size);
    static char in_bss[4096] __attribute__((aligned(16)));
    char *volatile wild = NULL;
    switch (how) {
      case 0: free(b), free(b); break;
      case 1: wild = on_stack + 64; free(wild); break;
      case 2: wild = b + 8; free(wild); break;
      case 3: wild = in_bss + 64; free(wild); break;
      case 4: wild = a + 16; free(wild); break;
      case 5: free(b), free(a), free(b); break;
      case 6: wild = on_stack + 64; wild = realloc(wild, 100); break;
      default: free(a), free(c), free(b), free(c); break;
    }
    _exit(c ? 7 : 8);
  }
  int status = 0;
  waitpid(child, &status, 0);
  note(&w->log, "wrong free %u of %zu: %s %d", how, size, WIFSIGNALED(status) ? "signal" : "exit",
       WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

/* What malloc tells of itself, in a child so that nothing of it stays. */
static void questions(struct worker *w) {
  unsigned how = below(&w->random, 9);
  int ends[2];
  if (pipe(ends)) return;
  pid_t child = fork();
  if (child < 0) return;
  if (child == 0) {
    quiet();
    alarm(50);
    long answer = -1;
    struct mallinfo2 before = mallinfo2();
    switch (how) {
      case 0: {
        char *volatile p = malloc(100000);
        answer = mallinfo2().uordblks - before.uordblks >= 100000 && p;
        break;
      }
      case 1: {
        char *volatile p = malloc(96 << 20);
        struct mallinfo2 after = mallinfo2();
        answer = (after.hblks - before.hblks) * 2 + (after.hblkhd - before.hblkhd > 96 << 20) + 4 * (p != NULL);
        break;
      }
      case 2: answer = mallopt(M_MMAP_THRESHOLD, 1 << 20) + 2 * mallopt(M_MMAP_THRESHOLD, 1 << 30); break;
      case 3: {
        mallopt(M_PERTURB, 0x5a);
        unsigned char *volatile p = malloc(5000);
        answer = p[100];
        break;
      }
      case 4: answer = mallopt(M_TRIM_THRESHOLD, 1 << 20) + 2 * mallopt(M_MXFAST, 64) + 4 * mallopt(M_MXFAST, 100000) + 8 * mallopt(4711, 1); break;
      case 5: answer = mallopt(M_ARENA_MAX, 1) + 2 * mallopt(M_TOP_PAD, 1 << 20) + 4 * mallopt(M_MMAP_MAX, 0); break;
      case 6: answer = malloc_info(1, stderr); break;
      case 7: answer = malloc_usable_size(NULL); break;
      default: {
        /* A limit of its own: what is reserved and not used counts, too. */
        struct rlimit limit = {1500 << 20, 1500 << 20};
        setrlimit(RLIMIT_AS, &limit);
        char *volatile p = malloc(500 << 20), *volatile q = malloc(1500UL << 20);
        answer = (p != NULL) + 2 * (q != NULL) + 4 * (errno == ENOMEM);
      }
    }
    _exit(write(ends[1], &answer, sizeof answer) == sizeof answer ? 0 : 91);
  }
  close(ends[1]);
  long answer = -2;
  if (read(ends[0], &answer, sizeof answer) != sizeof answer) answer = -2;
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  note(&w->log, "question %u: %ld, status %x", how, answer, status);
}

static void step(struct worker *w);

static void child_of(struct worker *w) {
  if (w->depth >= 2) return;
  uint64_t seed = next(&w->random);
  unsigned calls = below(&w->random, 60);
  int ends[2];
  if (pipe(ends)) return;
  pid_t child = fork();
  if (child < 0) return;
  if (child == 0) {
    alarm(100);
    w->depth++;
    w->random = w->log.hash = seed;
    w->alone = true;
    for (int i = 0; i < BLOCKS; i++)
      if (w->block[i].at) check(w, &w->block[i], "fork, in the child");
    for (unsigned i = 0; i < calls; i++) step(w);
    for (int i = 0; i < BLOCKS; i++)
      if (w->block[i].at) give_back(w, &w->block[i], "the child's last free");
    _exit(write(ends[1], &w->log.hash, 8) == 8 ? 0 : 91);
  }
  close(ends[1]);
  uint64_t hash = 0;
  if (read(ends[0], &hash, sizeof hash) != sizeof hash) hash = 0;
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  note(&w->log, "fork %u %lx status %x", calls, hash, status);
  if (status) mismatch(&w->log, "a child ended with status %x", status);
  for (int i = 0; i < BLOCKS; i++)
    if (w->block[i].at) check(w, &w->block[i], "fork, in the parent");
}

static void swap(struct worker *w, struct block *b) {
  if (w->alone) return;
  unsigned place = below(&w->random, 64);
  pthread_mutex_lock(&exchange_lock);
  struct block other = exchange[place];
  exchange[place] = *b;
  pthread_mutex_unlock(&exchange_lock);
  w->held -= b->size;
  b->at = NULL;
  note(&w->log, "swap %u", place);
  if (other.at) give_back(w, &other, "another thread's block");
}

static void step(struct worker *w) {
  struct block *b = &w->block[below(&w->random, BLOCKS)];
  unsigned what = below(&w->random, 10000);
  if (what < 8) child_of(w);
  else if (what < 14) wrong_free(w);
  else if (what < 22) questions(w);
  else if (what < 60) impossible(w);
  else if (what < 64) {
    malloc_trim(0);
    note(&w->log, "malloc_trim");
  }
  else if (!b->at) {
    if (w->held < (48UL << 20)) allocate(w, b);
  }
  else if (what < 2400) resize(w, b);
  else if (what < 2500) to_nothing(w, b);
  else if (what < 3000) swap(w, b);
  else if (what < 4000) {
    check(w, b, "a look");
    note(&w->log, "look");
  }
  else {
    w->held -= b->size;
    give_back(w, b, "free");
    note(&w->log, "free");
  }
  if (w->held >= (48UL << 20))
    for (int i = 0; i < BLOCKS; i += 2)
      if (w->block[i].at) {
        w->held -= w->block[i].size;
        give_back(w, &w->block[i], "free of many");
      }
}

static void *run(void *argument) {
  struct worker *w = argument;
  while (w->log.calls < w->calls) step(w);
  for (int i = 0; i < BLOCKS; i++)
    if (w->block[i].at) give_back(w, &w->block[i], "the last free");
  return NULL;
}

int main(int count, char **argument) {
  uint64_t seed = 1, calls = 20000;
  int threads = 1;
  for (int i = 1; i < count; i++) {
    if (!strcmp(argument[i], "--log")) log_is_printed = true;
    else if (i + 1 < count && !strcmp(argument[i], "--seed")) seed = strtoull(argument[++i], NULL, 10);
    else if (i + 1 < count && !strcmp(argument[i], "--calls")) calls = strtoull(argument[++i], NULL, 10);
    else if (i + 1 < count && !strcmp(argument[i], "--threads")) threads = atoi(argument[++i]);
    else {
      fprintf(stderr, "usage: %s [--seed N] [--calls N] [--threads N] [--log]\n", argument[0]);
      return 2;
    }
  }
  if (threads < 1 || threads > 16) return 2;
  many = threads > 1;
  catch_faults();
  struct worker *workers = raw_map(threads * sizeof *workers, false);
  pthread_t thread[16];
  for (int i = 0; i < threads; i++) {
    struct worker *w = &workers[i];
    snprintf(w->name, sizeof w->name, "thread %d", i);
    w->random = seed * 7919 + i;
    w->token = (uint64_t)i << 40;
    w->calls = calls / threads;
    w->alone = threads == 1;
    w->log = (struct log){.hash = 0xcbf29ce484222325, .name = w->name};
  }
  for (int i = 1; i < threads; i++)
    if (pthread_create(&thread[i], NULL, run, &workers[i])) return 94;
  run(&workers[0]);
  uint64_t hash = workers[0].log.hash, made = workers[0].log.calls;
  for (int i = 1; i < threads; i++) {
    pthread_join(thread[i], NULL);
    hash = hash * 31 + workers[i].log.hash;
    made += workers[i].log.calls;
  }
  for (int i = 0; i < 64; i++)
    if (exchange[i].at) give_back(&workers[0], &exchange[i], "what was left");
  printf("calls %lu hash %016lx\n", (unsigned long)made, (unsigned long)hash);
  return 0;
}
