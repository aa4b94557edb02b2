/* The model: what every page of every mapping holds and allows, kept beside the mappings. */
#ifndef MODEL_H
#define MODEL_H
#include "fuzz.h"

#define MAX_REGIONS 20
#define MAX_OBJECTS 4000
#define OBJECT_PAGES (16 * 256 + 64)

enum { UNMAPPED, PRIVATE, SHARED };

/* One page of a mapping.
 *
 * What it shows: a private page without object, or with `own` content: `token`. Any other: the object's page. */
struct page {
  uint8_t kind, prot;
  uint8_t guard : 1, own : 1, dontfork : 1, wipe : 1, locked : 2;
  uint8_t maybe_zero : 1, unknown : 1, guard_unknown : 1;
  uint8_t thp : 2, merge : 1, sequential : 1, nodump : 1, noreserve : 1, account : 2;
  int16_t object; /* -1: anonymous and private */
  uint32_t index; /* its page in the object */
  uint32_t origin; /* pages of one origin with the same attributes are one kernel mapping */
  uint32_t stamp;  /* of the mprotect that made `account` uncertain */
  uint64_t token;  /* 0: zeroes */
};

/* Memory that several mappings and processes share. Lives in shared memory: a child's writes are seen by its parent. */
struct object {
  uint32_t pages;
  int fd; /* -1: none */
  uint64_t *tokens;
  uint8_t *punched; /* MADV_REMOVE was here: guard pages of all mappings of it may have gone */
};

struct region {
  char *base;
  int number; /* never used again: what the log names it */
  uint32_t pages;
  struct page *page;
};

/* Everything one thread owns. */
struct world {
  struct region region[MAX_REGIONS];
  int regions, made;
  uint32_t origins;
  struct object *object; /* shared with children */
  int *objects;
  uint64_t random, token;
  uint32_t mapped, most; /* pages now, and at most */
  bool alone;            /* no other thread maps memory: holes stay holes until the next call */
  int depth;             /* forks above */
  struct log log;
  int source, null;
  char *buffer; /* 16 pages that the library does not manage */
  void *block[16];
  uint32_t block_pages[16];
  uint64_t block_token[16];
};

static inline bool readable(const struct page *p) { return p->prot & (PROT_READ | PROT_WRITE | PROT_EXEC); }

static inline bool behind_object(const struct world *w, const struct page *p) {
  return p->object >= 0 && p->index >= w->object[p->object].pages && !(p->kind == PRIVATE && p->own);
}

static inline bool guard_is_unknown(const struct world *w, const struct page *p) {
  return p->guard_unknown || (p->guard && p->object >= 0 && w->object[p->object].punched[p->index]);
}

/* Whether every access that its protection allows succeeds. */
static inline bool plain(const struct world *w, const struct page *p) {
  return p->kind != UNMAPPED && !p->guard && !p->guard_unknown && !behind_object(w, p);
}

static inline uint64_t content(const struct world *w, const struct page *p) {
  if (p->object < 0 || (p->kind == PRIVATE && p->own)) return p->token;
  return w->object[p->object].tokens[p->index];
}

static inline void set_content(struct world *w, struct page *p, uint64_t token) {
  p->maybe_zero = p->unknown = 0;
  if (p->kind == SHARED) {
    w->object[p->object].tokens[p->index] = token;
    return;
  }
  p->own = 1;
  p->token = token;
}

/* What was private goes: DONTNEED and its relatives. */
static inline void discard(struct page *p) {
  if (p->kind != PRIVATE) return;
  p->own = p->maybe_zero = p->unknown = 0;
  p->token = 0;
}

/* The kernel makes private pages of a file now, not at the first write. */
static inline void make_own(const struct world *w, struct page *p, bool surely) {
  if (p->kind != PRIVATE || p->object < 0 || p->own || !(p->prot & PROT_WRITE)) return;
  if (!plain(w, p)) return;
  if (surely) {
    p->token = content(w, p);
    p->own = 1;
  } else {
    p->unknown = 1;
  }
}

static inline int new_object(struct world *w, uint32_t pages, int fd) {
  if (*w->objects >= MAX_OBJECTS) return -1;
  int id = (*w->objects)++;
  struct object *o = &w->object[id];
  /* The whole address range that any object's pages may need, so that growing mappings have an index to ask for. */
  o->tokens = raw_map(OBJECT_PAGES * 3 * sizeof *o->tokens, true);
  o->punched = raw_map(OBJECT_PAGES * 3, true);
  o->pages = pages;
  o->fd = fd;
  return id;
}

static inline struct region *new_region(struct world *w, char *base, uint32_t pages) {
  struct region *r = &w->region[w->regions++];
  r->base = base;
  r->number = w->made++;
  r->pages = pages;
  r->page = raw_map(pages * sizeof *r->page, false);
  w->mapped += pages;
  return r;
}

/* Pages that had attributes or a hole of their own for a while may stay a kernel mapping of their own: what was touched meanwhile has
 * another anon_vma. Two origins never become one by this. */
static inline void set_apart(struct world *w, struct page *p) { p->origin = p->origin * 1000003 + w->log.calls; }

static inline void forget_pages(struct world *w, struct region *r, uint32_t first, uint32_t pages) {
  for (uint32_t i = first; i < first + pages; i++) {
    if (r->page[i].kind != UNMAPPED) w->mapped--;
    memset(&r->page[i], 0, sizeof r->page[i]);
  }
  for (uint32_t i = first + pages; i < r->pages; i++) set_apart(w, &r->page[i]);
}

/* Regions that are all holes leave the table. */
static inline void sweep(struct world *w) {
  for (int i = 0; i < w->regions;) {
    struct region *r = &w->region[i];
    uint32_t n = 0;
    while (n < r->pages && r->page[n].kind == UNMAPPED) n++;
    if (n < r->pages) {
      i++;
      continue;
    }
    syscall(SYS_munmap, r->page, (r->pages * sizeof *r->page + PAGE - 1) & ~(PAGE - 1));
    w->region[i] = w->region[--w->regions];
  }
}
#endif
