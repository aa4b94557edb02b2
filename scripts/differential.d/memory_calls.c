/* A fuzzer of memory calls with a shadow copy.
 *
 *   memory_calls --seed N [--calls N] [--threads N] [--log]
 *
 * Makes mappings of 4 KiB to 16 MiB around multiples of 2 MiB, private and shared (anonymous, memfd, System V), and calls
 * mmap (also MAP_FIXED over parts), munmap, mremap, mprotect, madvise, mlock, userfaultfd and fork on parts of them. What
 * every page holds and allows is kept in a model (model.h) and checked by loads, by stores and by system calls that read
 * and write the memory. A child gets a copy of the model and goes on calling. Results go into a hash: with the same seed
 * they must be the same in every run, whatever backs the memory. Exit status: 0 and one line `calls N hash H`; 1 the memory
 * is not what the model says; a signal.
 *
 * One long file: each call stands beside what the model makes of it, and that is read together.
 *
 * Some results depend on where the kernel put a mapping or on what memory is free (residency, COLLAPSE, growth in place into
 * space of others): those are not logged. */
#include "model.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/shm.h>
#include <sys/uio.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#define GUARD_INSTALL 102 /* MADV_GUARD_INSTALL, MADV_GUARD_REMOVE: Linux 6.13, not in this libc */
#define GUARD_REMOVE 103
#define OBJECT_LIMIT (OBJECT_PAGES * 3)

struct range {
  struct region *r;
  uint32_t first, pages;
};

static char *address(struct range at) { return at.r->base + at.first * PAGE; }

static struct page *page_at(struct range at, uint32_t i) { return &at.r->page[at.first + i]; }

static int number(struct range at) { return at.r->number; }

/* Whether a range of mremap is one kernel mapping depends on what lies beside it, and so does the error. */
static const char *moved(struct world *w, char *got) {
  if (got != MAP_FAILED) return "ok";
  return w->alone ? error_name(-1) : "refused";
}

/* ---------------------------------------------------------------- choosing */

/* 4 KiB to 16 MiB, mostly near multiples of 2 MiB. */
static uint32_t any_size(struct world *w) {
  unsigned kind = below(&w->random, 100);
  if (kind < 30) return 1 + below(&w->random, 16);
  unsigned supers = kind < 90 ? 1 + below(&w->random, 3) : 1 + below(&w->random, 8);
  int pages = supers * SUPER;
  switch (below(&w->random, 6)) {
    case 0: pages -= 1; break;
    case 1: pages += 1; break;
    case 2: pages -= below(&w->random, SUPER - 1); break;
    default: break;
  }
  return pages > 8 * SUPER ? 8 * SUPER : pages;
}

static int any_protection(struct world *w) {
  static const int all[] = {PROT_READ | PROT_WRITE, PROT_READ | PROT_WRITE, PROT_READ | PROT_WRITE, PROT_READ,
                            PROT_NONE,              PROT_WRITE,             PROT_READ | PROT_EXEC,  PROT_READ | PROT_WRITE | PROT_EXEC};
  return all[below(&w->random, 8)];
}

/* A range without holes: a whole run of mapped pages, a piece that begins and ends near a superpage, or a few pages. */
static bool any_range(struct world *w, struct range *at) {
  if (!w->regions) return false;
  struct region *r = &w->region[below(&w->random, w->regions)];
  uint32_t from = below(&w->random, r->pages);
  uint32_t here = from;
  do {
    if (r->page[here].kind != UNMAPPED) break;
    here = (here + 1) % r->pages;
  } while (here != from);
  uint32_t low = here, high = here + 1;
  while (low > 0 && r->page[low - 1].kind != UNMAPPED) low--;
  while (high < r->pages && r->page[high].kind != UNMAPPED) high++;
  unsigned kind = below(&w->random, 10);
  if (kind >= 2 && kind < 6) {
    uint32_t begin = (here & ~(SUPER - 1u)) + below(&w->random, 3) - 1;
    uint32_t end = (here & ~(SUPER - 1u)) + SUPER * (1 + below(&w->random, 2)) + below(&w->random, 3) - 1;
    if (begin + 1 > low + 1 && begin < high) low = begin;
    if (end > low && end < high) high = end;
  } else if (kind >= 6) {
    low = here;
    uint32_t end = here + 1 + below(&w->random, 8);
    if (end < high) high = end;
  }
  *at = (struct range){r, low, high - low};
  return true;
}

#define MAYBE 2

/* The part of a range whose pages are one kernel mapping's as far as the model knows. */
static struct range alike(struct range at) {
  struct page *a = page_at(at, 0);
  uint32_t n = 1;
  for (; n < at.pages; n++) {
    struct page *b = page_at(at, n);
    if (b->kind != a->kind || b->prot != a->prot || b->object != a->object || b->dontfork != a->dontfork ||
        b->wipe != a->wipe || b->locked != a->locked || (a->object >= 0 && b->index != a->index + n) ||
        b->thp != a->thp || b->merge != a->merge || b->sequential != a->sequential || b->nodump != a->nodump ||
        b->noreserve != a->noreserve || b->account != a->account || b->origin != a->origin ||
        (a->account == MAYBE && b->stamp != a->stamp))
      break;
  }
  at.pages = n;
  return at;
}

/* ---------------------------------------------------------------- checking */

static void check(struct world *w, struct range at, const char *after) {
  volatile uint32_t i = 0;
  uint32_t step = at.pages > 64 ? at.pages / 48 : 1;
  volatile uint32_t skew = step > 1 ? below(&w->random, step) : 0;
  if (sigsetjmp(fault.back, 0)) {
    mismatch(&w->log, "%s: page %u of %u of mapping %d cannot be read (signal %d, code %d)", after, at.first + i,
             at.r->pages, number(at), fault.signal, fault.code);
  }
  while (i < at.pages) {
    struct page *p = page_at(at, i);
    if (plain(w, p) && !guard_is_unknown(w, p) && readable(p) && !p->unknown) {
      const volatile uint64_t *memory = (void *)(address(at) + i * PAGE);
      uint64_t expected = content(w, p);
      unsigned start = i % 8 == 0 ? 0 : below(&w->random, 64);
      fault.armed = true;
      int word = page_differs(memory, expected, start, i % 8 == 0 ? 1 : 64);
      if (word >= 0 && p->maybe_zero && memory[word] == 0) word = page_differs(memory, 0, start, 64);
      fault.armed = false;
      if (word >= 0) {
        mismatch(&w->log, "%s: page %u of %u of mapping %d (kind %d prot %d), word %d: %lx, not %lx", after, at.first + i,
                 at.r->pages, number(at), p->kind, p->prot, word, memory[word], word_of(expected, word));
      }
    }
    uint32_t next_one = i + (i == 0 && skew ? skew : step);
    i = next_one >= at.pages && i + 1 < at.pages ? at.pages - 1 : next_one;
  }
}

static void check_all(struct world *w, const char *after) {
  for (int n = 0; n < w->regions; n++) check(w, (struct range){&w->region[n], 0, w->region[n].pages}, after);
}

/* A call that failed may have unmapped the range all the same. */
static void forget_if_gone(struct world *w, struct range at) {
  unsigned char vector[1];
  if (!w->alone || !mincore(address(at), PAGE, vector)) return;
  note(&w->log, "%d+%u %u is gone", number(at), at.first, at.pages);
  forget_pages(w, at.r, at.first, at.pages);
}

/* ---------------------------------------------------------------- the calls */

/* Attributes of `pages` pages of a fresh mapping. */
static void set_fresh(struct world *w, struct range at, int kind, int prot, int object, uint32_t index) {
  for (uint32_t i = 0; i < at.pages; i++) {
    struct page *p = page_at(at, i);
    if (p->kind == UNMAPPED) w->mapped++;
    *p = (struct page){.kind = kind, .prot = prot, .object = object, .index = index + i};
    p->account = kind == PRIVATE && (prot & PROT_WRITE);
    /* What is mapped anew into a mapping becomes a part of it, but not in a child, nor with a file. */
    p->origin = object >= 0 || w->depth ? w->origins + 1 : 0x80000000u + at.r->number;
  }
  w->origins++;
}

static int memfd(uint32_t pages) {
  int fd = memfd_create("fuzz", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, pages * PAGE)) return -1;
  return fd;
}

/* A new mapping, at an address of the kernel's choice, or over `over`. */
static void do_mmap(struct world *w, const struct range *over) {
  uint32_t pages = over ? over->pages : any_size(w);
  if (!over && (w->regions >= MAX_REGIONS || w->mapped + pages > w->most)) return;
  int prot = any_protection(w);
  int flags = over ? MAP_FIXED : 0;
  if (below(&w->random, 12) == 0) flags |= MAP_POPULATE;
  if (below(&w->random, 12) == 0) flags |= MAP_NORESERVE;
  unsigned what = below(&w->random, 10);
  int object = -1, fd = -1;
  uint32_t index = 0;
  int kind = what < 5 ? PRIVATE : SHARED;
  if (what >= 5) {
    if (what >= 7 && what < 9) {
      fd = memfd(pages + 3);
      index = below(&w->random, 3);
      kind = below(&w->random, 3) ? SHARED : PRIVATE;
    }
    object = new_object(w, fd < 0 ? pages : pages + 3, fd);
    if (object < 0) {
      if (fd >= 0) close(fd);
      return;
    }
  }
  char *base;
  if (what == 9 && !over) {
    int id = shmget(IPC_PRIVATE, pages * PAGE, IPC_CREAT | 0600);
    base = shmat(id, NULL, 0);
    int result = base == MAP_FAILED ? -1 : 0;
    note(&w->log, "shmat %u (mapping %d) %s", pages, w->made, error_name(result));
    shmctl(id, IPC_RMID, NULL);
    prot = PROT_READ | PROT_WRITE;
    flags = 0;
  } else {
    base = mmap(over ? address(*over) : NULL, pages * PAGE, prot,
                flags | (kind == SHARED ? MAP_SHARED : MAP_PRIVATE) | (fd < 0 ? MAP_ANONYMOUS : 0), fd, index * PAGE);
    note(&w->log, "mmap %u prot %d flags %x kind %d file %d (mapping %d+%u) %s", pages, prot, flags, kind, fd >= 0,
         over ? number(*over) : w->made, over ? over->first : 0, error_name(base == MAP_FAILED ? -1 : 0));
  }
  if (fd >= 0) close(fd);
  if (base == MAP_FAILED) return;
  struct range at;
  if (over) {
    if (base != address(*over)) mismatch(&w->log, "MAP_FIXED came to lie elsewhere");
    at = *over;
  } else {
    at = (struct range){new_region(w, base, pages), 0, pages};
    w->mapped -= pages; /* set_fresh counts them */
  }
  set_fresh(w, at, kind, prot, object, index);
  for (uint32_t i = 0; (flags & MAP_NORESERVE) && i < at.pages; i++) {
    page_at(at, i)->noreserve = 1;
    page_at(at, i)->account = 0;
  }
  if (flags & MAP_POPULATE)
    for (uint32_t i = 0; i < at.pages; i++) make_own(w, page_at(at, i), true);
  if (below(&w->random, 2)) check(w, at, "mmap");
}

/* Stores to some pages that can be written. */
static void do_write(struct world *w) {
  struct range at;
  if (!any_range(w, &at)) return;
  uint32_t most = below(&w->random, 40) == 0 ? at.pages : 1 + below(&w->random, 12);
  volatile uint32_t i = below(&w->random, at.pages);
  volatile uint32_t done = 0;
  if (sigsetjmp(fault.back, 0)) {
    mismatch(&w->log, "page %u of %u of mapping %d cannot be written (signal %d, code %d)", at.first + i, at.r->pages,
             number(at), fault.signal, fault.code);
  }
  for (; i < at.pages && done < most; i++) {
    struct page *p = page_at(at, i);
    if (!plain(w, p) || guard_is_unknown(w, p) || !(p->prot & PROT_WRITE)) continue;
    uint64_t token = ++w->token * 2654435761u + 1;
    fault.armed = true;
    fill_page((void *)(address(at) + i * PAGE), token);
    fault.armed = false;
    set_content(w, p, token);
    done++;
  }
  note(&w->log, "write %d+%u %u", number(at), at.first, done);
}

/* A load or a store anywhere: it faults where the protection or a guard says so, with the same signal and code. */
static void do_probe(struct world *w) {
  struct range at;
  if (!any_range(w, &at)) return;
  struct page *p = page_at(at, 0);
  volatile bool writes = below(&w->random, 2);
  if (guard_is_unknown(w, p)) return;
  volatile int signal = 0, code = 0;
  volatile uint64_t *word = (void *)address(at);
  if (sigsetjmp(fault.back, 0) == 0) {
    fault.armed = true;
    if (writes)
      *word = *word;
    else
      (void)*word;
    fault.armed = false;
  } else {
    signal = fault.signal;
    code = fault.code;
    if (fault.address != (char *)word) mismatch(&w->log, "a fault names an address that was not touched");
  }
  bool allowed = readable(p) && (!writes || (p->prot & PROT_WRITE));
  /* A store loads first. */
  int expected = p->guard || !readable(p) ? SIGSEGV : behind_object(w, p) ? SIGBUS : allowed ? 0 : SIGSEGV;
  note(&w->log, "%s %d+%u signal %d code %d", writes ? "store" : "load", number(at), at.first, signal, code);
  if (signal != expected) {
    mismatch(&w->log, "a %s at page %u of mapping %d (prot %d, guard %d) came to signal %d, not %d", writes ? "store" : "load",
             at.first, number(at), p->prot, p->guard, signal, expected);
  }
  if (writes && !signal) {
    /* Whatever it held, it holds now; MADV_FREE may have made it zero just before. */
    if (p->maybe_zero) p->unknown = 1;
    if (p->kind == PRIVATE && p->object >= 0 && !p->own) {
      p->token = content(w, p);
      p->own = 1;
    }
  }
}

static void do_mprotect(struct world *w) {
  struct range at;
  if (!any_range(w, &at)) return;
  int prot = any_protection(w);
  bool by_key = below(&w->random, 8) == 0;
  int result = by_key ? pkey_mprotect(address(at), at.pages * PAGE, prot, -1) : mprotect(address(at), at.pages * PAGE, prot);
  note(&w->log, "mprotect %d+%u %u prot %d key %d %s", number(at), at.first, at.pages, prot, by_key, error_name(result));
  if (result) return;
  for (uint32_t i = 0; i < at.pages; i++) {
    struct page *p = page_at(at, i);
    bool populates = p->locked && (prot & PROT_WRITE) && !(p->prot & PROT_WRITE);
    p->prot = prot;
    set_apart(w, p);
    if (p->kind == PRIVATE && (prot & PROT_WRITE)) p->account = !p->noreserve;
    if (p->account && !(prot & PROT_WRITE)) { /* the kernel keeps it where a page was touched */
      p->account = MAYBE;
      p->stamp = w->log.calls;
    }
    if (populates) make_own(w, p, false);
  }
  check(w, at, "mprotect");
}

/* Straight after munmap nobody else is there: calls on the hole fail, and it can be filled again. */
static void in_the_hole(struct world *w, struct range at) {
  unsigned char vector[1];
  char *hole = address(at);
  switch (below(&w->random, 5)) {
    case 0: note(&w->log, "mincore of hole %s", error_name(mincore(hole, PAGE, vector))); break;
    case 1: note(&w->log, "madvise of hole %s", error_name(madvise(hole, at.pages * PAGE, MADV_DONTNEED))); break;
    case 2: note(&w->log, "mprotect of hole %s", error_name(mprotect(hole, at.pages * PAGE, PROT_READ))); break;
    case 3: note(&w->log, "msync of hole %s", error_name(msync(hole, PAGE, MS_ASYNC))); break;
    default: {
      volatile int signal = 0, code = 0;
      if (sigsetjmp(fault.back, 0) == 0) {
        fault.armed = true;
        (void)*(volatile char *)hole;
        fault.armed = false;
      } else {
        signal = fault.signal;
        code = fault.code;
      }
      note(&w->log, "load from hole signal %d code %d", signal, code);
      if (!signal) mismatch(&w->log, "memory that was unmapped can be read");
    }
  }
  if (below(&w->random, 2)) return;
  int prot = any_protection(w);
  char *got = mmap(hole, at.pages * PAGE, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  note(&w->log, "mmap into hole %d+%u %u %s", number(at), at.first, at.pages, error_name(got == MAP_FAILED ? -1 : 0));
  if (got == MAP_FAILED) return;
  set_fresh(w, at, PRIVATE, prot, -1, 0);
  check(w, at, "mmap into a hole");
}

static void do_munmap(struct world *w) {
  struct range at;
  if (!any_range(w, &at)) return;
  if (w->mapped > w->most * 3 / 4 && below(&w->random, 2)) at = (struct range){at.r, 0, at.r->pages};
  for (uint32_t i = 0; i < at.pages; i++)
    if (page_at(at, i)->kind == UNMAPPED) { /* a hole may be another's by now */
      at.pages = i;
      break;
    }
  if (!at.pages) return;
  int result = munmap(address(at), at.pages * PAGE);
  note(&w->log, "munmap %d+%u %u %s", number(at), at.first, at.pages, error_name(result));
  if (result) return;
  forget_pages(w, at.r, at.first, at.pages);
  if (w->alone) in_the_hole(w, at);
  check(w, (struct range){at.r, 0, at.r->pages}, "munmap");
  sweep(w);
}

static void do_madvise(struct world *w) {
  static const struct {
    int advice;
    const char *name;
  } all[] = {
      {MADV_DONTNEED, "DONTNEED"},   {MADV_DONTNEED, "DONTNEED"},
      {MADV_FREE, "FREE"},           {MADV_REMOVE, "REMOVE"},
      {MADV_DONTFORK, "DONTFORK"},   {MADV_DOFORK, "DOFORK"},
      {MADV_DOFORK, "DOFORK"},       {MADV_WIPEONFORK, "WIPEONFORK"},
      {MADV_KEEPONFORK, "KEEPONFORK"}, {MADV_KEEPONFORK, "KEEPONFORK"},
      {MADV_HUGEPAGE, "HUGEPAGE"},   {MADV_NOHUGEPAGE, "NOHUGEPAGE"},
      {MADV_POPULATE_READ, "POPULATE_READ"}, {MADV_POPULATE_WRITE, "POPULATE_WRITE"},
      {MADV_COLD, "COLD"},           {MADV_PAGEOUT, "PAGEOUT"},
      {MADV_MERGEABLE, "MERGEABLE"}, {MADV_UNMERGEABLE, "UNMERGEABLE"},
      {MADV_DONTDUMP, "DONTDUMP"},   {MADV_DODUMP, "DODUMP"},
      {MADV_COLLAPSE, "COLLAPSE"},   {24, "DONTNEED_LOCKED"},
      {MADV_WILLNEED, "WILLNEED"},   {MADV_SEQUENTIAL, "SEQUENTIAL"},
      {GUARD_INSTALL, "GUARD_INSTALL"}, {GUARD_REMOVE, "GUARD_REMOVE"},
      {GUARD_REMOVE, "GUARD_REMOVE"},
  };
  struct range at;
  if (!any_range(w, &at)) return;
  unsigned which = below(&w->random, sizeof all / sizeof *all);
  int advice = all[which].advice;
  if (advice == MADV_COLLAPSE && below(&w->random, 4)) return;
  int result = madvise(address(at), at.pages * PAGE, advice);
  bool known = advice != MADV_COLLAPSE && advice != MADV_PAGEOUT;
  note(&w->log, "madvise %d+%u %u %s %s", number(at), at.first, at.pages, all[which].name,
       known ? error_name(result) : "-");
  /* The kernel goes from mapping to mapping and stops at the first that refuses. */
  for (uint32_t i = 0; i < at.pages; i++) {
    struct page *p = page_at(at, i);
    bool changes = advice == MADV_HUGEPAGE || advice == MADV_NOHUGEPAGE || advice == MADV_MERGEABLE || advice == MADV_UNMERGEABLE ||
                   advice == MADV_DONTDUMP || advice == MADV_DODUMP || advice == MADV_SEQUENTIAL || advice == MADV_DONTFORK ||
                   advice == MADV_DOFORK || advice == MADV_WIPEONFORK || advice == MADV_KEEPONFORK;
    if (changes) set_apart(w, p);
    switch (advice) {
      case MADV_DONTNEED:
        if (result && p->locked) goto done;
        discard(p);
        break;
      case 24: discard(p); break;
      case MADV_FREE:
        if (result && (p->locked || p->object >= 0)) goto done;
        if (p->kind == PRIVATE && p->token) p->maybe_zero = 1;
        break;
      case MADV_REMOVE:
        if (result && (p->locked || p->kind != SHARED)) goto done;
        w->object[p->object].tokens[p->index] = 0;
        w->object[p->object].punched[p->index] = 1;
        break;
      case MADV_HUGEPAGE: if (!result) p->thp = 1; break;
      case MADV_NOHUGEPAGE: if (!result) p->thp = 2; break;
      case MADV_MERGEABLE: if (!result) p->merge = 1; break;
      case MADV_UNMERGEABLE: if (!result) p->merge = 0; break;
      case MADV_DONTDUMP: if (!result) p->nodump = 1; break;
      case MADV_DODUMP: if (!result) p->nodump = 0; break;
      case MADV_SEQUENTIAL: if (!result) p->sequential = 1; break;
      case MADV_DONTFORK: if (!result) p->dontfork = 1; break;
      case MADV_DOFORK: if (!result) p->dontfork = 0; break;
      case MADV_WIPEONFORK:
        if (result && p->object >= 0) goto done;
        p->wipe = 1;
        break;
      case MADV_KEEPONFORK: if (!result) p->wipe = 0; break;
      case MADV_POPULATE_WRITE: make_own(w, p, result == 0); break;
      case GUARD_INSTALL:
        if (result && p->locked) goto done;
        if (result && errno != EINVAL) {
          p->guard_unknown = p->unknown = 1;
          break;
        }
        discard(p);
        p->guard = 1;
        p->guard_unknown = 0;
        if (p->object >= 0) w->object[p->object].punched[p->index] = 0;
        break;
      case GUARD_REMOVE: if (!result) p->guard = p->guard_unknown = 0; break;
      default: break;
    }
  }
done:
  check(w, at, all[which].name);
}

static void do_lock(struct world *w) {
  struct range at;
  if (!any_range(w, &at)) return;
  unsigned kind = below(&w->random, 4);
  if (at.pages > 2 * SUPER && kind < 2) at.pages = 2 * SUPER;
  int result = kind >= 2   ? munlock(address(at), at.pages * PAGE)
               : kind == 1 ? mlock2(address(at), at.pages * PAGE, MLOCK_ONFAULT)
                           : mlock(address(at), at.pages * PAGE);
  note(&w->log, "%s %d+%u %u %s", kind >= 2 ? "munlock" : kind ? "mlock2" : "mlock", number(at), at.first, at.pages,
       error_name(result));
  if (result && errno != ENOMEM) return;
  for (uint32_t i = 0; i < at.pages; i++) {
    struct page *p = page_at(at, i);
    if (kind == 0) make_own(w, p, result == 0);
    p->locked = kind < 2 ? kind + 1 : 0;
    set_apart(w, p);
  }
  check(w, at, "mlock");
}

/* What is moved leaves its old place as a hole, unless it is kept there. */
static void take_over(struct world *w, struct range from, struct range to, uint32_t pages, bool keeps) {
  struct page last = *page_at(from, from.pages - 1);
  w->origins++;
  for (uint32_t i = 0; i < pages; i++) {
    struct page *p = page_at(to, i);
    if (p->kind == UNMAPPED) w->mapped++;
    if (i < from.pages) {
      *p = *page_at(from, i);
      if (from.r != to.r) p->origin = w->origins;
    } else {
      *p = last;
      if (from.r != to.r) p->origin = w->origins;
      p->guard = p->own = p->maybe_zero = p->unknown = p->guard_unknown = 0;
      p->token = 0;
      p->index = last.index + (i - from.pages) + 1;
    }
  }
  w->origins++;
  for (uint32_t i = 0; keeps && i < from.pages; i++) {
    struct page *p = page_at(from, i);
    p->origin = w->origins; /* what is touched here from now on has nothing in common with its neighbours */
    discard(p);
    p->guard = p->guard_unknown = p->locked = 0;
  }
}

/* Growing and shrinking, with leave to move. */
static void do_mremap_size(struct world *w, struct range at) {
  uint32_t pages = below(&w->random, 2) ? any_size(w) : at.pages + below(&w->random, 9) - 4;
  if (pages == 0 || pages > 8 * SUPER) pages = 1;
  struct page *p = page_at(at, 0);
  if (w->regions >= MAX_REGIONS || w->mapped + pages > w->most) return;
  if (p->object >= 0 && p->index + pages >= OBJECT_LIMIT) return;
  if (pages > at.pages) at = alike(at);
  char *old = address(at);
  char *got = mremap(old, at.pages * PAGE, pages * PAGE, MREMAP_MAYMOVE);
  note(&w->log, "mremap %d+%u %u to %u (mapping %d) %s", number(at), at.first, at.pages, pages, w->made, moved(w, got));
  if (got == MAP_FAILED) return;
  if (pages <= at.pages) {
    if (got != old) mismatch(&w->log, "mremap moved what it shrank");
    forget_pages(w, at.r, at.first + pages, at.pages - pages);
    check(w, (struct range){at.r, 0, at.r->pages}, "mremap");
    sweep(w);
    return;
  }
  long from = at.r - w->region;
  struct region *made = new_region(w, got, pages);
  w->mapped -= pages;
  at.r = &w->region[from];
  struct range to = {made, 0, pages};
  take_over(w, at, to, pages, false);
  if (page_at(to, 0)->locked)
    for (uint32_t i = 0; i < pages; i++) make_own(w, page_at(to, i), false);
  forget_pages(w, at.r, at.first, at.pages);
  check(w, to, "mremap");
  sweep(w);
}

/* Growth where it lies, into room that was just made. */
static void do_mremap_in_place(struct world *w, struct range at) {
  if (!w->alone || at.pages < 2) return;
  at = alike(at);
  uint32_t keep = 1 + below(&w->random, at.pages);
  if (keep >= at.pages) return;
  struct range tail = {at.r, at.first + keep, at.pages - keep};
  int gone = munmap(address(tail), tail.pages * PAGE);
  note(&w->log, "munmap tail %d+%u %u %s", number(at), tail.first, tail.pages, error_name(gone));
  if (gone) return;
  forget_pages(w, at.r, tail.first, tail.pages);
  struct range head = {at.r, at.first, keep};
  char *got = mremap(address(head), keep * PAGE, at.pages * PAGE, 0);
  note(&w->log, "mremap in place %d+%u %u to %u %s", number(at), at.first, keep, at.pages, moved(w, got));
  if (got == MAP_FAILED) return;
  if (got != address(head)) mismatch(&w->log, "mremap moved without leave");
  take_over(w, head, head, at.pages, false);
  if (page_at(head, 0)->locked)
    for (uint32_t i = 0; i < at.pages; i++) make_own(w, page_at(at, i), false);
  check(w, at, "mremap in place");
}

static void unlock(struct world *w, struct range at) {
  /* DONTUNMAP unlocks the whole kernel mapping that the range is a part of; how far that goes is not in the model. */
  if (!page_at(at, 0)->locked) return;
  munlock(address(at), at.pages * PAGE);
  for (uint32_t i = 0; i < at.pages; i++) {
    page_at(at, i)->locked = 0;
    set_apart(w, page_at(at, i));
  }
}

/* To a place that is mapped already, by MREMAP_FIXED. */
static void do_mremap_fixed(struct world *w, struct range at) {
  struct range to;
  if (!any_range(w, &to)) return;
  at = alike(at);
  uint32_t pages = at.pages < to.pages ? at.pages : to.pages;
  at.pages = to.pages = pages;
  if (at.r == to.r && at.first < to.first + pages && to.first < at.first + pages) return;
  bool keeps = below(&w->random, 3) == 0;
  if (keeps) unlock(w, at);
  char *got = mremap(address(at), pages * PAGE, pages * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED | (keeps ? MREMAP_DONTUNMAP : 0),
                     address(to));
  note(&w->log, "mremap %d+%u %u onto %d+%u keep %d %s", number(at), at.first, pages, number(to), to.first,
       keeps, moved(w, got));
  if (got == MAP_FAILED) {
    /* The target may be gone although the call failed (mremap(2), BUGS). */
    forget_if_gone(w, to);
    check(w, at, "mremap that failed");
    sweep(w);
    return;
  }
  if (got != address(to)) mismatch(&w->log, "MREMAP_FIXED came to lie elsewhere");
  take_over(w, at, to, pages, keeps);
  w->origins++;
  for (uint32_t i = 0; i < pages; i++) page_at(to, i)->origin = w->origins;
  if (!keeps) forget_pages(w, at.r, at.first, pages);
  check(w, to, "mremap onto");
  if (keeps) check(w, at, "mremap that keeps");
  sweep(w);
}

/* The same memory once more: old size 0, or the old place kept (DONTUNMAP). */
static void do_mremap_twice(struct world *w, struct range at) {
  at = alike(at);
  if (w->regions >= MAX_REGIONS || w->mapped + at.pages > w->most) return;
  bool keeps = below(&w->random, 2);
  if (keeps) unlock(w, at);
  char *got = mremap(address(at), keeps ? at.pages * PAGE : 0, at.pages * PAGE, MREMAP_MAYMOVE | (keeps ? MREMAP_DONTUNMAP : 0), NULL);
  note(&w->log, "mremap %d+%u %u (mapping %d) %s %s", number(at), at.first, at.pages, w->made, keeps ? "DONTUNMAP" : "duplicate",
       moved(w, got));
  if (got == MAP_FAILED) return;
  long from = at.r - w->region;
  struct region *made = new_region(w, got, at.pages);
  w->mapped -= at.pages;
  at.r = &w->region[from];
  struct range to = {made, 0, at.pages};
  take_over(w, at, to, at.pages, keeps);
  for (uint32_t i = 0; !keeps && i < at.pages; i++) { /* tables are not copied, attributes are */
    struct page *p = page_at(to, i);
    p->guard = p->guard_unknown = p->own = p->unknown = 0;
  }
  if (page_at(to, 0)->locked)
    for (uint32_t i = 0; i < at.pages; i++) make_own(w, page_at(to, i), false);
  check(w, to, "mremap twice");
  check(w, at, "mremap twice");
}

static void do_mremap(struct world *w) {
  struct range at;
  if (!any_range(w, &at)) return;
  switch (below(&w->random, 6)) {
    case 0:
    case 1: do_mremap_size(w, at); break;
    case 2: do_mremap_in_place(w, at); break;
    case 3:
    case 4: do_mremap_fixed(w, at); break;
    default: do_mremap_twice(w, at);
  }
}

/* read(2) into the memory and process_vm_readv(2) out of it: the kernel touches the pages itself. */
static void do_system_calls(struct world *w) {
  struct range at;
  if (!any_range(w, &at)) return;
  if (at.pages > 16) at.pages = 16;
  for (uint32_t i = 0; i < at.pages; i++)
    if (guard_is_unknown(w, page_at(at, i))) return;
  if (below(&w->random, 2)) {
    ssize_t got = pread(w->source, address(at), at.pages * PAGE, 0);
    note(&w->log, "read %d+%u %u %s %zd", number(at), at.first, at.pages, error_name(got < 0 ? -1 : 0), got < 0 ? 0 : got);
    for (uint32_t i = 0; i < at.pages; i++) {
      struct page *p = page_at(at, i);
      if (got >= (ssize_t)((i + 1) * PAGE))
        set_content(w, p, 1000 + i);
      else if (got > (ssize_t)(i * PAGE))
        set_content(w, p, 0), p->unknown = 1;
    }
    check(w, at, "read");
    return;
  }
  struct iovec to = {w->buffer, at.pages * PAGE}, from = {address(at), at.pages * PAGE};
  ssize_t got = process_vm_readv(getpid(), &to, 1, &from, 1, 0);
  note(&w->log, "process_vm_readv %d+%u %u %s %zd", number(at), at.first, at.pages, error_name(got < 0 ? -1 : 0), got < 0 ? 0 : got);
  for (uint32_t i = 0; i < at.pages && got >= (ssize_t)((i + 1) * PAGE); i++) {
    struct page *p = page_at(at, i);
    if (p->unknown || p->maybe_zero) continue;
    int word = page_differs((void *)(w->buffer + i * PAGE), content(w, p), 0, 1);
    if (word >= 0) mismatch(&w->log, "the kernel reads something else at page %u of mapping %d, word %d", at.first + i, number(at), word);
  }
}

/* Pages of a shared mapping in another order. */
static void do_remap_file_pages(struct world *w) {
  struct range at;
  if (!w->alone || !any_range(w, &at)) return;
  at = alike(at);
  struct page *p = page_at(at, 0);
  if (p->kind != SHARED) return;
  uint32_t size = w->object[p->object].pages;
  if (at.pages > size) return;
  uint32_t index = below(&w->random, size - at.pages + 1);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  int result = remap_file_pages(address(at), at.pages * PAGE, 0, index, 0);
#pragma GCC diagnostic pop
  note(&w->log, "remap_file_pages %d+%u %u from %u %s", number(at), at.first, at.pages, index, error_name(result));
  if (result) { /* for System V's memory it unmaps, and then fails */
    forget_if_gone(w, at);
    sweep(w);
    return;
  }
  for (uint32_t i = 0; i < at.pages; i++) {
    struct page *q = page_at(at, i);
    struct page fresh = {.kind = SHARED, .prot = q->prot, .object = q->object, .index = index + i, .locked = q->locked};
    /* A new mapping in the same place: what was advised is gone or not, as the kernel likes it. */
    fresh.dontfork = q->dontfork;
    *q = fresh;
  }
  madvise(address(at), at.pages * PAGE, MADV_DOFORK);
  for (uint32_t i = 0; i < at.pages; i++) page_at(at, i)->dontfork = 0;
  check(w, at, "remap_file_pages");
}

/* A program that fills its own memory by userfaultfd. */
static void do_userfaultfd(struct world *w) {
  uint32_t pages = any_size(w);
  if (w->regions >= MAX_REGIONS || w->mapped + pages > w->most) return;
  int fd = syscall(SYS_userfaultfd, O_CLOEXEC);
  struct uffdio_api api = {.api = UFFD_API};
  if (fd < 0 || ioctl(fd, UFFDIO_API, &api)) {
    note(&w->log, "userfaultfd %s", error_name(-1));
    if (fd >= 0) close(fd);
    return;
  }
  char *base = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  note(&w->log, "mmap for userfaultfd %u (mapping %d) %s", pages, w->made, error_name(base == MAP_FAILED ? -1 : 0));
  if (base == MAP_FAILED) {
    close(fd);
    return;
  }
  struct range at = {new_region(w, base, pages), 0, pages};
  w->mapped -= pages;
  set_fresh(w, at, PRIVATE, PROT_READ | PROT_WRITE, -1, 0);
  struct uffdio_register whole = {.range = {(uintptr_t)base, pages * PAGE}, .mode = UFFDIO_REGISTER_MODE_MISSING};
  int result = ioctl(fd, UFFDIO_REGISTER, &whole);
  note(&w->log, "UFFDIO_REGISTER %s", error_name(result));
  for (unsigned i = 0; !result && i < 4; i++) {
    uint32_t n = below(&w->random, pages);
    uint64_t token = ++w->token * 2654435761u + 1;
    fill_page((void *)w->buffer, token);
    struct uffdio_copy copy = {.dst = (uintptr_t)base + n * PAGE, .src = (uintptr_t)w->buffer, .len = PAGE};
    bool zeroes = i == 3;
    struct uffdio_zeropage zero = {.range = {(uintptr_t)base + n * PAGE, PAGE}};
    int got = zeroes ? ioctl(fd, UFFDIO_ZEROPAGE, &zero) : ioctl(fd, UFFDIO_COPY, &copy);
    note(&w->log, "%s %u %s", zeroes ? "UFFDIO_ZEROPAGE" : "UFFDIO_COPY", n, error_name(got));
    if (!got && !zeroes) set_content(w, page_at(at, n), token);
  }
  if (!result) note(&w->log, "UFFDIO_UNREGISTER %s", error_name(ioctl(fd, UFFDIO_UNREGISTER, &whole.range)));
  close(fd);
  check(w, at, "userfaultfd");
}

/* The program's own heap beside the mappings. */
static void do_heap(struct world *w) {
  unsigned n = below(&w->random, 16);
  if (w->block[n]) {
    int word = page_differs(w->block[n], w->block_token[n], 0, 1);
    if (word >= 0) mismatch(&w->log, "a block of malloc changed, word %d", word);
    if (below(&w->random, 3) == 0) {
      uint32_t pages = 1 + below(&w->random, 600);
      void *grown = realloc(w->block[n], pages * PAGE);
      note(&w->log, "realloc %u %d", pages, grown != NULL);
      if (!grown) return;
      w->block[n] = grown;
      if (page_differs(grown, w->block_token[n], 0, 1) >= 0) mismatch(&w->log, "realloc lost what the block held");
      return;
    }
    free(w->block[n]);
    w->block[n] = NULL;
    note(&w->log, "free");
    return;
  }
  uint32_t pages = below(&w->random, 4) ? 1 + below(&w->random, 40) : 1 + below(&w->random, 1200);
  bool zeroed = below(&w->random, 2);
  w->block[n] = zeroed ? calloc(pages, PAGE) : malloc(pages * PAGE);
  note(&w->log, "%s %u %d", zeroed ? "calloc" : "malloc", pages, w->block[n] != NULL);
  if (!w->block[n]) return;
  for (uint32_t i = 0; zeroed && i < pages; i += 1 + pages / 8)
    if (page_differs((void *)((char *)w->block[n] + i * PAGE), 0, 0, 16) >= 0) mismatch(&w->log, "calloc gave memory that is not zero");
  w->block_token[n] = ++w->token * 2654435761u + 1;
  fill_page(w->block[n], w->block_token[n]);
}

/* The program's own break, below or above malloc's. */
static void do_break(struct world *w) {
  if (!w->alone) return;
  intptr_t size = (1 + below(&w->random, 40)) * PAGE;
  char *old = sbrk(size);
  note(&w->log, "sbrk %s", error_name(old == (void *)-1 ? -1 : 0));
  if (old == (void *)-1) return;
  bool exact = sbrk(0) == old + size;
  note(&w->log, "the break is where it was put: %d", exact);
  memset(old, 0x5a, size);
  if (exact) note(&w->log, "sbrk back %s", error_name(sbrk(-size) == (void *)-1 ? -1 : 0));
}

static long status_value(const char *field) {
  char text[8192];
  int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  ssize_t n = read(fd, text, sizeof text - 1);
  close(fd);
  if (n <= 0) return -1;
  text[n] = 0;
  char *at = strstr(text, field);
  return at ? atol(at + strlen(field)) : -1;
}

/* Calls that cannot succeed, and what they say. */
static void do_wrong(struct world *w) {
  struct range at;
  if (!any_range(w, &at)) return;
  char *here = address(at);
  size_t length = at.pages * PAGE;
  int result;
  switch (below(&w->random, 14)) {
    case 0: result = mmap(NULL, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED ? -1 : 0; break;
    case 1: result = mmap(here + 1, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED ? -1 : 0; break;
    case 2: result = mmap(NULL, 1UL << 52, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED ? -1 : 0; break;
    case 3: result = mmap(NULL, 4 * SUPER * PAGE, PROT_READ, MAP_ANONYMOUS, -1, 0) == MAP_FAILED ? -1 : 0; break;
    case 4: result = mmap(here, length, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == MAP_FAILED ? -1 : 0; break;
    case 5: result = munmap(here + 8, length); break;
    case 6: result = munmap(here, 0); break;
    case 7: result = mprotect(here + 8, length, PROT_READ); break;
    case 8: result = mprotect(here, length, 0x40); break;
    case 9: result = madvise(here, length, 9999); break;
    case 10: result = madvise(here + 8, length, MADV_DONTNEED); break;
    case 11: result = mremap(here, length, 0, MREMAP_MAYMOVE) == MAP_FAILED ? -1 : 0; break;
    case 12: result = mremap(here, length, length, MREMAP_FIXED, here) == MAP_FAILED ? -1 : 0; break;
    default: result = mmap(NULL, 2 * SUPER * PAGE, PROT_READ, MAP_PRIVATE, -1, 0) == MAP_FAILED ? -1 : 0; break;
  }
  note(&w->log, "wrong %s", error_name(result));
  if (!result) mismatch(&w->log, "a call that cannot succeed did");
  check(w, at, "a wrong call");
}

static void step(struct world *w);

/* A child sees what the parent saw, writes, calls and ends; what it shares is seen afterwards, what is private is not. */
static void do_fork(struct world *w) {
  if (w->depth >= 2) return;
  unsigned calls = below(&w->random, 16);
  uint64_t seed = next(&w->random);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC)) return;
  pid_t child = fork();
  if (child < 0) {
    note(&w->log, "fork %s", error_name(-1));
    close(ends[0]), close(ends[1]);
    return;
  }
  if (child == 0) {
    alarm(100);
    close(ends[0]);
    w->depth++;
    w->random = seed;
    w->log.hash = seed;
    w->alone = true;
    for (int n = 0; n < w->regions; n++) {
      struct region *r = &w->region[n];
      for (uint32_t i = 0; i < r->pages; i++) {
        struct page *p = &r->page[i];
        if (p->kind == UNMAPPED) continue;
        p->locked = 0;
        if (p->wipe && p->kind == PRIVATE && !p->dontfork) {
          discard(p);
          if (p->guard) p->guard_unknown = 1;
        }
        if (p->dontfork) forget_pages(w, r, i, 1);
      }
    }
    sweep(w);
    check_all(w, "fork, in the child");
    for (unsigned i = 0; i < calls; i++) step(w);
    check_all(w, "calls of the child");
    uint64_t report[2] = {w->log.hash, *w->objects};
    _exit(write(ends[1], report, sizeof report) == sizeof report ? 0 : 96);
  }
  close(ends[1]);
  uint64_t report[2] = {0, 0};
  ssize_t got;
  do
    got = read(ends[0], report, sizeof report);
  while (got < 0 && errno == EINTR);
  close(ends[0]);
  int status = 0;
  if (waitpid(child, &status, 0) != child) mismatch(&w->log, "the child cannot be waited for");
  if (WIFSIGNALED(status)) mismatch(&w->log, "a child was killed by signal %d", WTERMSIG(status));
  if (WEXITSTATUS(status)) mismatch(&w->log, "a child ended with %d", WEXITSTATUS(status));
  note(&w->log, "fork %u %lx", calls, report[0]);
  check_all(w, "fork, in the parent");
}

static void step(struct world *w) {
  unsigned what = below(&w->random, 1000);
  if ((w->regions < 3 && w->mapped < w->most / 2) || what < 90) do_mmap(w, NULL);
  else if (what < 140) {
    struct range at;
    if (any_range(w, &at)) do_mmap(w, &at);
  }
  else if (what < 330) do_write(w);
  else if (what < 420) do_probe(w);
  else if (what < 510) do_mprotect(w);
  else if (what < 610) do_munmap(w);
  else if (what < 780) do_madvise(w);
  else if (what < 870) do_mremap(w);
  else if (what < 895) do_lock(w);
  else if (what < 930) do_system_calls(w);
  else if (what < 945) do_remap_file_pages(w);
  else if (what < 950) do_userfaultfd(w);
  else if (what < 975) do_heap(w);
  else if (what < 980) do_break(w);
  else if (what < 993) do_wrong(w);
  else if (what < 996) do_fork(w);
  else if (w->alone) note(&w->log, "VmLck %ld", status_value("VmLck:"));
}

/* ---------------------------------------------------------------- the run */

struct job {
  struct world world;
  uint64_t calls;
  char name[24];
};

static void prepare(struct job *job, uint64_t seed, int number, int threads, uint64_t calls) {
  struct world *w = &job->world;
  snprintf(job->name, sizeof job->name, "thread %d", number);
  job->calls = calls;
  w->object = raw_map(MAX_OBJECTS * sizeof *w->object, true);
  w->objects = raw_map(PAGE, true);
  w->random = seed * 1000003 + number;
  w->token = (uint64_t)number << 40;
  w->most = (threads > 1 ? 12 : 40) * 256;
  w->alone = threads == 1;
  w->log = (struct log){.hash = 0xcbf29ce484222325, .name = job->name};
  w->buffer = raw_map(16 * PAGE, false);
  w->source = memfd(16);
  if (w->source < 0) _exit(95);
  for (unsigned i = 0; i < 16; i++) {
    fill_page((void *)w->buffer, 1000 + i);
    if (pwrite(w->source, w->buffer, PAGE, i * PAGE) != PAGE) _exit(95);
  }
}

static void *run(void *argument) {
  struct job *job = argument;
  while (job->world.log.calls < job->calls) step(&job->world);
  check_all(&job->world, "all calls");
  return NULL;
}

int main(int count, char **argument) {
  uint64_t seed = 1, calls = 5000;
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
  catch_faults();
  struct job *jobs = raw_map(threads * sizeof *jobs, false);
  pthread_t thread[16];
  for (int i = 0; i < threads; i++) prepare(&jobs[i], seed, i, threads, calls / threads);
  for (int i = 1; i < threads; i++)
    if (pthread_create(&thread[i], NULL, run, &jobs[i])) return 94;
  run(&jobs[0]);
  uint64_t hash = jobs[0].world.log.hash, made = jobs[0].world.log.calls;
  for (int i = 1; i < threads; i++) {
    pthread_join(thread[i], NULL);
    hash = hash * 31 + jobs[i].world.log.hash;
    made += jobs[i].world.log.calls;
  }
  printf("calls %lu hash %016lx\n", (unsigned long)made, (unsigned long)hash);
  return 0;
}
