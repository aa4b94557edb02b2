/* Counters in superpages that other calls take apart.
 *
 *   shared_counters --seed N [--calls N] [--threads N] [--log]
 *
 * Threads increment counters without rest, by themselves and through read(2), while the first thread protects, advises, remaps and unmaps
 * other pages of the same superpages, and forks. No increment may be lost and no access may fail: when a superpage is moved or split
 * under running threads, that shows here. The number of increments is not part of the verdict, that none is missing is. */
#include "fuzz.h"

#include <stdatomic.h>

#define MAPPINGS 4
#define MAPPING_PAGES (3 * SUPER)
#define COUNTER_EVERY 97 /* pages: those are never called upon */

static char *mapping[MAPPINGS];
static atomic_bool stops;

struct worker {
  int number;
  uint64_t made[MAPPINGS * MAPPING_PAGES / COUNTER_EVERY + MAPPINGS];
};

static _Atomic uint64_t *counter(int which, int thread) {
  int each = MAPPING_PAGES / COUNTER_EVERY;
  return (_Atomic uint64_t *)(mapping[which / each] + (which % each) * COUNTER_EVERY * PAGE + PAGE / 2 + thread * 8);
}

static void *count(void *argument) {
  struct worker *w = argument;
  int counters = MAPPINGS * (MAPPING_PAGES / COUNTER_EVERY);
  uint64_t random = w->number;
  int ends[2];
  if (pipe(ends)) _exit(94);
  while (!stops) {
    int which = below(&random, counters);
    _Atomic uint64_t *own = counter(which, w->number);
    if (below(&random, 64)) {
      atomic_fetch_add_explicit(own, 1, memory_order_relaxed);
    } else {
      /* The kernel writes it: a call may be in the midst when the page is moved. */
      uint64_t value = w->made[which] + 1;
      if (write(ends[1], &value, 8) != 8 || read(ends[0], (void *)own, 8) != 8) {
        static const char text[] = "read(2) into a counter failed\n";
        _exit(write(2, text, sizeof text - 1) < 0 ? 93 : 1);
      }
    }
    w->made[which]++;
  }
  return NULL;
}

/* A run of pages between two counters. */
static char *some_pages(uint64_t *random, size_t *length) {
  int m = below(random, MAPPINGS);
  unsigned gap = below(random, MAPPING_PAGES / COUNTER_EVERY);
  unsigned first = gap * COUNTER_EVERY + 1 + below(random, COUNTER_EVERY - 2);
  unsigned most = (gap + 1) * COUNTER_EVERY - first;
  *length = (1 + below(random, most)) * PAGE;
  return mapping[m] + first * PAGE;
}

static void call(uint64_t *random, struct log *log) {
  static const int advices[] = {MADV_DONTNEED, MADV_FREE, MADV_COLD, MADV_NOHUGEPAGE, MADV_HUGEPAGE, MADV_DONTDUMP, MADV_DODUMP, MADV_WILLNEED};
  size_t length;
  char *at = some_pages(random, &length);
  switch (below(random, 9)) {
    case 0:
    case 1: note(log, "mprotect %s", error_name(mprotect(at, length, PROT_READ))); break;
    case 2:
    case 3: note(log, "mprotect back %s", error_name(mprotect(at, length, PROT_READ | PROT_WRITE))); break;
    case 4:
    case 5: {
      int advice = advices[below(random, 8)];
      note(log, "madvise %d %s", advice, error_name(madvise(at, length, advice)));
      break;
    }
    case 6: {
      char *got = mmap(at, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
      note(log, "mmap over %s", error_name(got == MAP_FAILED ? -1 : 0));
      break;
    }
    case 7: note(log, "mlock %s", error_name(mlock(at, length))), munlock(at, length); break;
    default: {
      if (below(random, 12)) return;
      pid_t child = fork();
      if (child == 0) {
        *(volatile char *)(mapping[0] + PAGE / 2) = 1;
        void *volatile block = malloc(100000);
        free(block);
        _exit(0);
      }
      int status = -1;
      if (child > 0) waitpid(child, &status, 0);
      note(log, "fork %x", status);
    }
  }
}

int main(int argc, char **argument) {
  uint64_t seed = 1, calls = 3000;
  int threads = 4;
  for (int i = 1; i < argc; i++) {
    if (!strcmp(argument[i], "--log")) log_is_printed = true;
    else if (i + 1 < argc && !strcmp(argument[i], "--seed")) seed = strtoull(argument[++i], NULL, 10);
    else if (i + 1 < argc && !strcmp(argument[i], "--calls")) calls = strtoull(argument[++i], NULL, 10);
    else if (i + 1 < argc && !strcmp(argument[i], "--threads")) threads = atoi(argument[++i]);
    else return 2;
  }
  if (threads < 2 || threads > 16) return 2;
  struct log log = {.hash = 0xcbf29ce484222325, .name = "caller"};
  for (int m = 0; m < MAPPINGS; m++) {
    mapping[m] = mmap(NULL, MAPPING_PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapping[m] == MAP_FAILED) return 95;
  }
  struct worker *workers = raw_map(threads * sizeof *workers, false);
  pthread_t thread[16];
  for (int i = 1; i < threads; i++) {
    workers[i].number = i;
    if (pthread_create(&thread[i], NULL, count, &workers[i])) return 94;
  }
  uint64_t random = seed;
  while (log.calls < calls) call(&random, &log);
  stops = true;
  for (int i = 1; i < threads; i++) pthread_join(thread[i], NULL);
  for (int i = 1; i < threads; i++)
    for (int which = 0; which < MAPPINGS * (MAPPING_PAGES / COUNTER_EVERY); which++)
      if (*counter(which, i) != workers[i].made[which])
        mismatch(&log, "counter %d of thread %d is %lu after %lu increments", which, i, (unsigned long)*counter(which, i),
                 (unsigned long)workers[i].made[which]);
  printf("calls %lu hash %016lx\n", (unsigned long)log.calls, (unsigned long)log.hash);
  return 0;
}
