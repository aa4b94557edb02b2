/* A fuzzer of memory calls amid forks.
 *
 *   fork_calls --seed N [--calls N] [--threads N] [--forkers N] [--log]
 *
 * Each thread maps private memory of 4 KiB to 12 MiB and changes it by munmap, mmap with MAP_FIXED, mremap, mprotect, madvise and
 * stores. It keeps a model of every page (mapped, protection, content, DONTFORK) and compares some pages after each call, all pages
 * every 100 calls. Meanwhile other threads fork, also in a signal handler of those threads, and call vfork and posix_spawn. A child
 * compares what it sees with its copy of the model, stores, and makes calls; its parent must not see that. Exit status: 0 and one
 * line `calls N differences 0`; 1 and the first differences; 3 a thread made no progress for a minute.
 *
 * A fork is no snapshot: other threads run while it copies. The model of a thread is compared in a child only if that thread was
 * between two calls all the while. Each thread has a version in shared memory, odd during a call. The forking thread reads it before
 * the fork, the child reads it again as the first thing it does: the same even number at both times says that neither memory nor
 * model changed in between. Threads wait between calls for half of the forks, so that this is often so.
 *
 * A hole is soon another thread's, if the kernel chose the place. Each thread therefore also has a window of addresses that the
 * kernel does not choose by itself, where holes are compared, too: they must fault. */
#include "fuzz.h"

#include <spawn.h>
#include <stdatomic.h>
#include <time.h>

#define MAX_THREADS 16
#define MAX_FORKERS 4
#define AREAS 12               /* of a thread; the first is its window */
#define CAPACITY (8u * SUPER)  /* pages of an area, at most, and of a window */
#define LARGEST (6u * SUPER)   /* pages of a mapping */
#define MOST (14u * SUPER)     /* pages that a thread maps at a time: with three threads 84 MiB */
#define FEW 8                  /* differences that are printed; as many end the run */
#define PATIENCE 60            /* seconds without progress */
#define MICROSECOND 1000L

struct page {
  uint64_t token; /* word_of gives the first and the last word; 0: zeroes */
  uint8_t mapped, prot, dontfork;
};

struct area {
  char *base;
  uint32_t pages;
  bool window; /* holes stay holes */
  bool intact; /* each run of pages is one kernel mapping */
  struct page page[CAPACITY];
};

struct range {
  struct area *a;
  uint32_t first, pages;
};

/* Everything one thread owns: a child has a copy. */
struct worker {
  struct area area[AREAS];
  int number;
  uint64_t random, timing, token; /* `timing` never decides about calls */
  uint64_t calls, limit;
  uint64_t seen[MAX_FORKERS];
  uint32_t mapped;
  const char *last; /* call */
  pthread_t thread;
};

struct difference {
  int thread, area;
  bool child;
  uint32_t page, in_superpage;
  struct page model;
  const char *after, *what;
  uint64_t call, expected, found;
};

/* What processes share. */
static struct control {
  struct {
    _Alignas(64) _Atomic uint64_t version; /* odd: in a call */
    atomic_bool finished;
  } worker[MAX_THREADS];
  struct {
    _Alignas(64) _Atomic uint64_t phase; /* odd: about to fork, or the child has not yet read the versions */
    atomic_bool taken, handled;
  } forker[MAX_FORKERS];
  atomic_bool stops, released;
  _Atomic uint64_t children, compared; /* children by fork, and threads' models compared in them */
  _Atomic uint32_t differences;
  struct difference difference[FEW];
} *control;

static struct worker *workers;
static int threads = 3, forkers = 2;
static uint64_t seed = 1;
static bool in_child, just_forked; /* just forked: what is marked DONTFORK is not there */
static int native_of_key, native_of_advice[32]; /* errno of the system call itself, 0: it succeeds */

static char *address(struct range at) { return at.a->base + at.first * PAGE; }

static void pause_for(long nanoseconds) { nanosleep(&(struct timespec){.tv_nsec = nanoseconds}, NULL); }

static void differ(struct worker *w, const struct area *a, uint32_t page, const char *what, uint64_t expected, uint64_t found) {
  uint32_t n = atomic_fetch_add(&control->differences, 1);
  if (n >= FEW) return;
  struct difference *d = &control->difference[n];
  *d = (struct difference){.thread = w ? w->number : -1, .child = in_child, .what = what, .expected = expected, .found = found};
  if (w) d->after = w->last, d->call = w->calls;
  if (!a) return;
  d->area = a - w->area;
  d->page = page;
  d->in_superpage = ((uintptr_t)a->base / PAGE + page) % SUPER;
  if (page < a->pages) d->model = a->page[page];
}

/* ---------------------------------------------------------------- a call's beginning and end */

/* Memory and model differ from here on. The fence keeps what follows behind the odd version. */
static void begin(struct worker *w, const char *call) {
  w->last = call;
  w->calls++;
  if (in_child) return;
  _Atomic uint64_t *version = &control->worker[w->number].version;
  atomic_store_explicit(version, atomic_load_explicit(version, memory_order_relaxed) + 1, memory_order_relaxed);
  atomic_thread_fence(memory_order_seq_cst);
}

static void end(struct worker *w) {
  if (in_child) return;
  _Atomic uint64_t *version = &control->worker[w->number].version;
  atomic_store_explicit(version, atomic_load_explicit(version, memory_order_relaxed) + 1, memory_order_release);
}

/* Waits for half of the forks, between two calls. */
static void wait_for_forks(struct worker *w) {
  for (int f = 0; f < forkers; f++) {
    uint64_t phase = control->forker[f].phase;
    if (phase % 2 == 0 || phase == w->seen[f]) continue;
    w->seen[f] = phase;
    if (below(&w->timing, 2)) continue;
    for (int i = 0; i < 3000 && control->forker[f].phase == phase; i++) pause_for(50 * MICROSECOND);
  }
}

/* ---------------------------------------------------------------- comparing */

/* 0, or the signal that the access came to. */
static int load(const char *page, uint64_t found[2]) {
  if (sigsetjmp(fault.back, 0)) return fault.signal;
  fault.armed = true;
  found[0] = *(const volatile uint64_t *)page;
  found[1] = *(const volatile uint64_t *)(page + PAGE - 8);
  fault.armed = false;
  return 0;
}

static int store(char *page, volatile uint64_t token) {
  if (sigsetjmp(fault.back, 0)) return fault.signal;
  fault.armed = true;
  *(volatile uint64_t *)page = word_of(token, 0);
  *(volatile uint64_t *)(page + PAGE - 8) = word_of(token, PAGE / 8 - 1);
  fault.armed = false;
  return 0;
}

/* As a load, without the cost of a signal: a system call that reads its argument before it finds that it is wrong. */
static bool kernel_reads(const char *page) { return syscall(SYS_rt_sigprocmask, 99, page, NULL, 8) == -1 && errno == EINVAL; }

static bool is_there(const struct page *p) { return p->mapped && !(just_forked && p->dontfork); }

static bool is_readable(const struct page *p) { return is_there(p) && p->prot != PROT_NONE; }

static bool lacks(const struct area *a, const struct page *p) { return just_forked && p->dontfork && !a->window; }

static void compare(struct worker *w, struct area *a, uint32_t i) {
  struct page *p = &a->page[i];
  if (i >= a->pages || (!p->mapped && !a->window)) return;
  uint64_t found[2];
  int expected = is_readable(p) ? 0 : SIGSEGV;
  int signal = load(a->base + i * PAGE, found);
  /* Where a child lacks a page, outside of the window a library may have mapped memory of its own. */
  if (lacks(a, p) && !signal && !(p->token && found[0] == word_of(p->token, 0))) return;
  if (signal != expected) differ(w, a, i, "signal of a load", expected, signal);
  for (int n = 0; n < 2 && !signal && !expected; n++) {
    uint64_t word = word_of(p->token, n ? PAGE / 8 - 1 : 0);
    if (found[n] != word) differ(w, a, i, n ? "last word of a page" : "first word of a page", word, found[n]);
  }
}

/* Every page that can be read; of the others those at a border by a load, and one of eight by a system call. */
static void compare_all(struct worker *w) {
  unsigned skew = below(&w->timing, 8);
  for (struct area *a = w->area; a < w->area + AREAS; a++)
    for (uint32_t i = 0; i < a->pages; i++) {
      struct page *p = &a->page[i];
      bool border = i == 0 || i + 1 == a->pages || is_readable(p - 1) || is_readable(p + 1);
      if (is_readable(p) || border) compare(w, a, i);
      else if ((p->mapped || a->window) && !lacks(a, p) && (i + skew) % 8 == 0 && kernel_reads(a->base + i * PAGE))
        differ(w, a, i, "system call that reads", EFAULT, EINVAL);
    }
}

/* The borders of the range, and some pages anywhere. */
static void compare_some(struct worker *w, struct range at) {
  if (at.a && at.pages) {
    if (at.first) compare(w, at.a, at.first - 1);
    compare(w, at.a, at.first);
    compare(w, at.a, at.first + below(&w->timing, at.pages));
    compare(w, at.a, at.first + at.pages - 1);
    compare(w, at.a, at.first + at.pages);
  }
  struct area *a = &w->area[below(&w->timing, AREAS)];
  compare(w, a, below(&w->timing, a->pages));
}

/* Whether a call came to what it must. `expected`: an errno, 0: success. */
static bool is_as(struct worker *w, struct range at, int expected, bool failed) {
  int found = failed ? errno : 0;
  if (found != expected) differ(w, at.a, at.first, "errno of the call", expected, found);
  return !found;
}

/* ---------------------------------------------------------------- choosing */

static uint32_t any_size(struct worker *w) {
  if (below(&w->random, 100) < 60) return 1 + below(&w->random, 40);
  uint32_t pages = SUPER * (below(&w->random, 4) ? 1 + below(&w->random, 2) : 1 + below(&w->random, 6));
  switch (below(&w->random, 4)) {
    case 0: return pages - 1;
    case 1: return pages < LARGEST ? pages + 1 : pages;
    case 2: return pages - below(&w->random, SUPER - 1);
    default: return pages;
  }
}

static int any_protection(struct worker *w) {
  unsigned n = below(&w->random, 8);
  return n == 0 ? PROT_NONE : n < 3 ? PROT_READ : PROT_READ | PROT_WRITE;
}

static struct area *free_area(struct worker *w) {
  for (struct area *a = w->area + 1; a < w->area + AREAS; a++)
    if (!a->pages) return a;
  return NULL;
}

/* Pages of the window, with holes or without. */
static struct range any_place(struct worker *w, uint32_t pages) {
  uint32_t first = below(&w->random, CAPACITY - pages + 1);
  if (below(&w->random, 2)) first -= first % SUPER;
  return (struct range){w->area, first, pages};
}

static bool has_mapped(struct range at) {
  for (uint32_t i = 0; i < at.pages; i++)
    if (at.a->page[at.first + i].mapped) return true;
  return false;
}

/* A range without holes: a whole run of mapped pages, a piece that ends near superpages' borders, or a few pages. */
static bool any_range(struct worker *w, struct range *at) {
  if (!w->mapped) return false;
  struct area *a = &w->area[below(&w->random, AREAS)];
  while (!has_mapped((struct range){a, 0, a->pages})) a = a + 1 < w->area + AREAS ? a + 1 : w->area;
  long here = below(&w->random, a->pages);
  while (!a->page[here].mapped) here = (here + 1) % a->pages;
  long low = here, high = here + 1;
  while (low > 0 && a->page[low - 1].mapped) low--;
  while (high < a->pages && a->page[high].mapped) high++;
  unsigned kind = below(&w->random, 10);
  if (kind >= 2 && kind < 6) {
    long border = here - (long)(((uintptr_t)a->base / PAGE + here) % SUPER);
    long first = border + below(&w->random, 3) - 1, behind = border + SUPER * (1 + below(&w->random, 2)) + below(&w->random, 3) - 1;
    if (first > low && first <= here) low = first;
    if (behind > here && behind < high) high = behind;
  } else if (kind >= 6) {
    long behind = here + 1 + below(&w->random, 8);
    low = here;
    if (behind < high) high = behind;
  }
  *at = (struct range){a, low, high - low};
  return true;
}

/* ---------------------------------------------------------------- the calls */

static void set(struct worker *w, struct range at, struct page value) {
  for (struct page *p = at.a->page + at.first; p < at.a->page + at.first + at.pages; p++) {
    w->mapped += value.mapped - p->mapped;
    *p = value;
  }
  if (value.mapped || at.a->window || has_mapped((struct range){at.a, 0, at.a->pages})) return;
  at.a->pages = 0;
}

static struct page fresh(int prot) { return (struct page){.mapped = 1, .prot = prot}; }

/* A new mapping where the kernel likes, or at a place of the window. */
static struct range do_mmap(struct worker *w) {
  static const int all[] = {0, MAP_FIXED, MAP_FIXED_NOREPLACE};
  uint32_t pages = any_size(w);
  int prot = any_protection(w), flags = MAP_PRIVATE | MAP_ANONYMOUS;
  struct range at = any_place(w, pages);
  struct area *a = free_area(w);
  bool chosen = below(&w->random, 3) == 0;
  if (w->mapped + pages > MOST || (!chosen && !a)) return (struct range){0};
  bool taken = has_mapped(at);
  int more = all[below(&w->random, 3)];
  if (!more && taken) more = MAP_FIXED; /* a hint that is taken is no address */
  begin(w, "mmap");
  char *got = mmap(chosen ? address(at) : NULL, pages * PAGE, prot, flags | (chosen ? more : 0), -1, 0);
  if (!chosen) at = (struct range){a, 0, pages};
  if (is_as(w, at, chosen && taken && more == MAP_FIXED_NOREPLACE ? EEXIST : 0, got == MAP_FAILED)) {
    if (chosen && got != address(at)) differ(w, at.a, at.first, "address of mmap", (uintptr_t)address(at), (uintptr_t)got);
    if (!chosen) a->base = got, a->pages = pages, a->intact = true;
    set(w, at, fresh(prot));
  }
  end(w);
  return at;
}

static struct range do_mmap_over(struct worker *w, struct range at) {
  int prot = any_protection(w);
  begin(w, "mmap over memory");
  char *got = mmap(address(at), at.pages * PAGE, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  if (is_as(w, at, 0, got != address(at))) set(w, at, fresh(prot));
  at.a->intact = false;
  end(w);
  return at;
}

static struct range do_munmap(struct worker *w, struct range at) {
  if (at.a->window && below(&w->random, 2)) at = any_place(w, 1 + below(&w->random, 2 * SUPER)); /* holes and all */
  begin(w, "munmap");
  if (is_as(w, at, 0, munmap(address(at), at.pages * PAGE))) set(w, at, (struct page){0});
  end(w);
  return at;
}

static struct range do_mprotect(struct worker *w, struct range at) {
  int prot = any_protection(w);
  unsigned kind = below(&w->random, 16);
  begin(w, kind == 0 ? "pkey_mprotect, key 0" : kind == 1 ? "pkey_mprotect, key -1" : "mprotect");
  int result = kind < 2 ? pkey_mprotect(address(at), at.pages * PAGE, prot, kind ? -1 : 0) : mprotect(address(at), at.pages * PAGE, prot);
  if (is_as(w, at, kind ? 0 : native_of_key, result))
    for (uint32_t i = 0; i < at.pages; i++) at.a->page[at.first + i].prot = prot;
  at.a->intact = false;
  end(w);
  return at;
}

static const int advices[] = {MADV_DONTNEED, MADV_DONTNEED,  MADV_DONTNEED, MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_DONTFORK,
                              MADV_DOFORK,   MADV_SEQUENTIAL, MADV_WILLNEED, MADV_DONTDUMP};
static const char *const advice_names[] = {"DONTNEED", "DONTNEED",   "DONTNEED", "HUGEPAGE", "NOHUGEPAGE", "DONTFORK",
                                           "DOFORK",   "SEQUENTIAL", "WILLNEED", "DONTDUMP"};

static struct range do_madvise(struct worker *w, struct range at) {
  unsigned which = below(&w->random, sizeof advices / sizeof *advices);
  int advice = advices[which];
  begin(w, advice_names[which]);
  if (is_as(w, at, native_of_advice[advice], madvise(address(at), at.pages * PAGE, advice)))
    for (struct page *p = at.a->page + at.first; p < at.a->page + at.first + at.pages; p++) {
      if (advice == MADV_DONTNEED) p->token = 0;
      if (advice == MADV_DONTFORK || advice == MADV_DOFORK) p->dontfork = advice == MADV_DONTFORK;
    }
  if (advice != MADV_DONTNEED) at.a->intact = false;
  end(w);
  return at;
}

/* Stores to some pages, also where they must fault. */
static struct range do_store(struct worker *w, struct range at) {
  if (at.pages > 16 && below(&w->random, 16)) at.pages = 16;
  begin(w, "store");
  for (uint32_t i = at.first; i < at.first + at.pages; i++) {
    struct page *p = &at.a->page[i];
    bool allowed = is_there(p) && (p->prot & PROT_WRITE);
    if (!allowed && at.pages > 16) continue;
    uint64_t token = ++w->token * 2654435761u + 1;
    int signal = store(at.a->base + i * PAGE, token);
    if (signal != (allowed ? 0 : SIGSEGV)) differ(w, at.a, i, "signal of a store", allowed ? 0 : SIGSEGV, signal);
    if (!signal) p->token = token;
  }
  end(w);
  return at;
}

/* Puts the model of `from` at `to`, where the pages behind are like the last, and zero; leaves holes. */
static void take_over(struct worker *w, struct range from, struct range to) {
  struct page last = from.a->page[from.first + from.pages - 1];
  last.token = 0;
  for (uint32_t i = 0; i < to.pages; i++)
    set(w, (struct range){to.a, to.first + i, 1}, i < from.pages ? from.a->page[from.first + i] : last);
  if (to.a != from.a || to.first != from.first) set(w, from, (struct page){0});
}

/* To a place of the window. Before 6.17 the range must be one kernel mapping. */
static struct range do_mremap_fixed(struct worker *w, struct range at) {
  struct range to = any_place(w, at.pages);
  if (at.pages > LARGEST || (at.a == to.a && at.first < to.first + to.pages && to.first < at.first + at.pages)) return (struct range){0};
  begin(w, "mremap to a fixed address");
  char *got = mremap(address(at), at.pages * PAGE, at.pages * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, address(to));
  bool refused = got == MAP_FAILED && errno == EFAULT && !at.a->intact;
  if (!refused && is_as(w, at, 0, got != address(to))) {
    take_over(w, at, to);
  } else {
    /* What was at the target may be gone although the call failed (mremap(2), BUGS). */
    munmap(address(to), to.pages * PAGE);
    set(w, to, (struct page){0});
  }
  end(w);
  return to;
}

static struct range do_mremap(struct worker *w, struct range at) {
  unsigned kind = below(&w->random, 8);
  if (kind == 0) {
    begin(w, "mremap of nothing");
    is_as(w, at, EINVAL, mremap(address(at), 0, at.pages * PAGE, MREMAP_MAYMOVE) == MAP_FAILED);
    end(w);
    return at;
  }
  if (kind < 3) return do_mremap_fixed(w, at);
  uint32_t n = 1; /* pages of one protection */
  struct page *p = at.a->page + at.first;
  while (n < at.pages && p[n].prot == p->prot && p[n].dontfork == p->dontfork) n++;
  at.pages = n;
  uint32_t pages = kind < 5 ? 1 + below(&w->random, n) : n + (below(&w->random, 3) ? 1 + below(&w->random, 40) : any_size(w));
  struct area *a = free_area(w);
  if (!a || pages > LARGEST || at.first + pages > CAPACITY || w->mapped + pages > MOST) return (struct range){0};
  int flags = kind < 7 ? MREMAP_MAYMOVE : 0;
  struct range behind = {at.a, at.first + n, pages > n ? pages - n : 0};
  bool may_lack_room = !flags && pages > n && (!at.a->window || has_mapped(behind));
  begin(w, pages <= n ? "mremap to shrink" : flags ? "mremap to grow" : "mremap to grow in place");
  char *got = mremap(address(at), n * PAGE, pages * PAGE, flags);
  bool refused = got == MAP_FAILED && ((errno == EFAULT && !at.a->intact) || (errno == ENOMEM && may_lack_room));
  struct range to = at;
  if (!refused && is_as(w, at, 0, got == MAP_FAILED)) {
    if (pages <= n) {
      if (got != address(at)) differ(w, at.a, at.first, "address of mremap", (uintptr_t)address(at), (uintptr_t)got);
      set(w, (struct range){at.a, at.first + pages, n - pages}, (struct page){0});
    } else if (got == address(at)) {
      to.pages = pages;
      if (at.a->pages < at.first + pages) at.a->pages = at.first + pages;
      /* What follows has an anon_vma of its own, maybe, and is not joined. */
      if (at.first + pages < at.a->pages && p[pages].mapped) at.a->intact = false;
      take_over(w, at, to);
    } else {
      a->base = got, a->pages = pages, a->intact = at.a->intact;
      to = (struct range){a, 0, pages};
      take_over(w, at, to);
    }
  }
  end(w);
  return to;
}

static void step(struct worker *w) {
  struct range at = {0};
  unsigned what = below(&w->random, 100);
  if (w->mapped > MOST * 3 / 4 && what < 10) what = 30; /* room for more */
  if (!any_range(w, &at) || what < 15) at = do_mmap(w);
  else if (what < 22) at = do_mmap_over(w, at);
  else if (what < 34) at = do_munmap(w, at);
  else if (what < 46) at = do_mremap(w, at);
  else if (what < 60) at = do_mprotect(w, at);
  else if (what < 74) at = do_madvise(w, at);
  else at = do_store(w, at);
  compare_some(w, at);
}

/* ---------------------------------------------------------------- children */

/* Compares the models of threads that were between two calls all the while, then stores and calls. */
static _Noreturn void child(int f, const uint64_t *before, uint64_t random) {
  bool quiet[MAX_THREADS];
  atomic_thread_fence(memory_order_seq_cst);
  for (int i = 0; i < threads; i++) quiet[i] = before[i] % 2 == 0 && control->worker[i].version == before[i];
  control->forker[f].taken = true;
  in_child = true;
  alarm(PATIENCE / 2);
  just_forked = true;
  for (int i = 0; i < threads; i++) {
    if (!quiet[i]) continue;
    control->compared++;
    compare_all(&workers[i]);
  }
  just_forked = false;
  /* From here on a hole of one model may be mapped by the calls of another. */
  for (int i = 0; i < threads; i++) {
    struct worker *w = &workers[i];
    if (!quiet[i]) continue;
    for (struct area *a = w->area; a < w->area + AREAS; a++)
      for (uint32_t n = 0; n < a->pages; n++)
        if (a->page[n].dontfork) set(w, (struct range){a, n, 1}, (struct page){0});
    w->random = next(&random);
    w->token |= 1ull << 50; /* what no parent stores */
    for (int n = 0; n < 24; n++) step(w);
    compare_all(w);
  }
  _exit(control->differences != 0);
}

/* The versions before it, the fork, and the end of the child. */
static void fork_and_wait(int f, uint64_t random) {
  uint64_t before[MAX_THREADS];
  int status = 0;
  for (int i = 0; i < threads; i++) before[i] = atomic_load_explicit(&control->worker[i].version, memory_order_acquire);
  control->forker[f].taken = false;
  atomic_thread_fence(memory_order_seq_cst);
  pid_t pid = fork();
  if (pid == 0) child(f, before, random);
  if (pid < 0) differ(NULL, NULL, 0, "errno of fork", 0, errno);
  control->children++;
  pid_t ended = pid < 0 ? pid : 0;
  while (ended == 0 && !control->forker[f].taken) {
    pause_for(20 * MICROSECOND);
    ended = waitpid(pid, &status, WNOHANG);
  }
  control->forker[f].phase++;
  while (ended == 0 || (ended < 0 && pid > 0 && errno == EINTR)) ended = waitpid(pid, &status, 0);
  if (status && status != W_EXITCODE(1, 0)) differ(NULL, NULL, 0, "wait status of a child", 0, status);
}

static void on_fork_signal(int signal) {
  int error = errno, f = signal - SIGRTMIN;
  fork_and_wait(f, control->forker[f].phase * 1000003 + f);
  control->forker[f].handled = true;
  errno = error;
}

/* A child that shares the memory until it executes or ends. */
static pid_t spawn_or_vfork(bool spawns) {
  char *arguments[] = {"fork_calls", "--nothing", NULL}, *none[] = {NULL};
  pid_t pid;
  if (spawns) return posix_spawn(&pid, "/proc/self/exe", NULL, NULL, arguments, none) ? -1 : pid;
  pid = vfork();
  if (pid == 0) _exit(0);
  return pid;
}

static void *fork_often(void *argument) {
  int f = (int)(intptr_t)argument;
  uint64_t random = seed * 7919 + f;
  while (!control->stops) {
    unsigned kind = below(&random, 10);
    control->forker[f].phase++;
    if (below(&random, 4)) pause_for(below(&random, 400) * MICROSECOND); /* threads may come to wait */
    if (kind < 6) {
      fork_and_wait(f, next(&random));
    } else if (kind < 8) {
      control->forker[f].handled = false;
      pthread_kill(workers[below(&random, threads)].thread, SIGRTMIN + f);
      while (!control->forker[f].handled) pause_for(50 * MICROSECOND);
    } else {
      int status = -1;
      pid_t pid = spawn_or_vfork(kind == 9);
      while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
      if (status) differ(NULL, NULL, 0, kind == 9 ? "wait status of posix_spawn" : "wait status of vfork", 0, status);
      control->forker[f].phase++;
    }
    pause_for(below(&random, 2) ? MICROSECOND : below(&random, 15000) * MICROSECOND);
  }
  return NULL;
}

/* ---------------------------------------------------------------- the run */

static void *work(void *argument) {
  struct worker *w = argument;
  for (uint64_t whole = 0; w->calls < w->limit && control->differences < FEW;) {
    wait_for_forks(w);
    step(w);
    if (w->calls < whole + 100) continue;
    whole = w->calls;
    w->last = "all";
    compare_all(w);
  }
  compare_all(w);
  control->worker[w->number].finished = true;
  while (!control->released) pause_for(1000 * MICROSECOND); /* signals to it still fork */
  return NULL;
}

/* What the system calls themselves say on this machine. */
static void ask_the_kernel(void) {
  char *page = raw_map(PAGE, false);
  native_of_key = syscall(SYS_pkey_mprotect, page, PAGE, PROT_READ | PROT_WRITE, 0) ? errno : 0;
  for (unsigned i = 0; i < sizeof advices / sizeof *advices; i++)
    native_of_advice[advices[i]] = syscall(SYS_madvise, page, PAGE, advices[i]) ? errno : 0;
}

static void on_alarm(int signal) {
  (void)signal;
  static const char here[] = "mismatch: hung: a thread made no progress\n", there[] = "mismatch: hung: a child did not end\n";
  if (write(2, in_child ? there : here, in_child ? sizeof there - 1 : sizeof here - 1) < 0) _exit(97);
  _exit(3);
}

/* Waits for the threads; the alarm is put off whenever all of them have moved. */
static void watch(void) {
  uint64_t version[MAX_THREADS], phase[MAX_FORKERS];
  for (bool all = false, fresh = true; !all; pause_for(10000 * MICROSECOND)) {
    bool moved = true;
    all = true;
    for (int i = 0; i < threads; i++) {
      bool finished = control->worker[i].finished;
      all &= finished;
      moved &= fresh || finished || control->worker[i].version != version[i];
    }
    for (int f = 0; f < forkers; f++) moved &= fresh || control->forker[f].phase != phase[f];
    fresh = false;
    if (!moved) continue;
    alarm(PATIENCE);
    for (int i = 0; i < threads; i++) version[i] = control->worker[i].version;
    for (int f = 0; f < forkers; f++) phase[f] = control->forker[f].phase;
  }
}

static void print(const struct difference *d) {
  printf("mismatch in %s%d after call %lu (%s): area %d page %u (%u of its superpage; mapped %d prot %d dontfork %d): %s is %lx, not %lx\n",
         d->child ? "a child, thread " : "thread ", d->thread, (unsigned long)d->call, d->after ? d->after : "-", d->area, d->page,
         d->in_superpage, d->model.mapped, d->model.prot, d->model.dontfork, d->what, (unsigned long)d->found, (unsigned long)d->expected);
}

int main(int count, char **argument) {
  uint64_t calls = 20000;
  if (count == 2 && !strcmp(argument[1], "--nothing")) return 0;
  for (int i = 1; i < count; i++) {
    if (!strcmp(argument[i], "--log")) log_is_printed = true;
    else if (i + 1 < count && !strcmp(argument[i], "--seed")) seed = strtoull(argument[++i], NULL, 10);
    else if (i + 1 < count && !strcmp(argument[i], "--calls")) calls = strtoull(argument[++i], NULL, 10);
    else if (i + 1 < count && !strcmp(argument[i], "--threads")) threads = atoi(argument[++i]);
    else if (i + 1 < count && !strcmp(argument[i], "--forkers")) forkers = atoi(argument[++i]);
    else {
      fprintf(stderr, "usage: %s [--seed N] [--calls N] [--threads N] [--forkers N] [--log]\n", argument[0]);
      return 2;
    }
  }
  if (threads < 1 || threads > MAX_THREADS || forkers < 0 || forkers > MAX_FORKERS) return 2;
  catch_faults();
  signal(SIGALRM, on_alarm);
  struct sigaction forks = {.sa_handler = on_fork_signal, .sa_flags = SA_RESTART};
  for (int f = 0; f < forkers; f++) sigaddset(&forks.sa_mask, SIGRTMIN + f); /* a fork within a fork of the same thread waits for itself */
  for (int f = 0; f < forkers; f++) sigaction(SIGRTMIN + f, &forks, NULL);
  control = raw_map(sizeof *control, true);
  workers = raw_map(threads * sizeof *workers, false);
  ask_the_kernel();
  pthread_t forker[MAX_FORKERS];
  for (int i = 0; i < threads; i++) {
    struct worker *w = &workers[i];
    w->number = i;
    w->random = seed * 1000003 + i;
    w->timing = ~w->random;
    w->token = (uint64_t)(i + 1) << 52;
    w->limit = calls / threads + (i == 0 ? calls % threads : 0);
    /* Below all that the kernel chooses, and not at the same place within a superpage. */
    w->area[0] = (struct area){.base = (char *)(0x100000000000 + (i * 1024ul * SUPER + i % 3 * 5) * PAGE), .pages = CAPACITY, .window = true};
  }
  for (int i = 0; i < threads; i++)
    if (pthread_create(&workers[i].thread, NULL, work, &workers[i])) return 94;
  for (int f = 0; f < forkers; f++)
    if (pthread_create(&forker[f], NULL, fork_often, (void *)(intptr_t)f)) return 94;
  watch();
  control->stops = true;
  for (int f = 0; f < forkers; f++) pthread_join(forker[f], NULL);
  control->released = true;
  for (int i = 0; i < threads; i++) pthread_join(workers[i].thread, NULL);
  for (uint32_t n = 0; n < control->differences && n < FEW; n++) print(&control->difference[n]);
  if (log_is_printed) fprintf(stderr, "forks %lu, models compared in children %lu\n", (unsigned long)control->children, (unsigned long)control->compared);
  printf("calls %lu differences %u\n", (unsigned long)calls, control->differences);
  return control->differences != 0;
}
