/* What the fuzzers share: a seeded generator, a log that is hashed, and memory that the library under test never sees.
 *
 * Two runs with the same seed make the same calls as long as each call has the same result. The hash over all results is
 * therefore the verdict; `--log` prints what is hashed, one line per call, and two logs are compared by diff. Addresses
 * are never logged, only offsets within a mapping. */
#ifndef FUZZ_H
#define FUZZ_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096UL
#define SUPER 512 /* pages in a superpage of 2 MiB */

/* splitmix64: small, and the whole state is one number that a child can be given. */
static inline uint64_t next(uint64_t *state) {
  uint64_t z = (*state += 0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

static inline unsigned below(uint64_t *state, unsigned limit) { return limit ? next(state) % limit : 0; }

struct log {
  uint64_t hash;
  uint64_t calls;
  const char *name; /* of the thread or child, in printed lines */
};

static bool log_is_printed;

/* Notes one call and its result. */
__attribute__((format(printf, 2, 3))) static inline void note(struct log *log, const char *format, ...) {
  char line[256];
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(line, sizeof line - 1, format, arguments);
  va_end(arguments);
  if (length > (int)sizeof line - 2) length = sizeof line - 2;
  line[length++] = '\n';
  for (int i = 0; i < length; i++) log->hash = (log->hash ^ (unsigned char)line[i]) * 0x100000001b3;
  log->calls++;
  if (log_is_printed) {
    char whole[320];
    int n = snprintf(whole, sizeof whole, "%s %lu %.*s", log->name, (unsigned long)log->calls, length, line);
    if (write(1, whole, n) != n) _exit(99);
  }
}

/* Ends the process: the memory is not what the calls made it. */
__attribute__((format(printf, 2, 3), noreturn)) static inline void mismatch(struct log *log, const char *format, ...) {
  char line[400];
  int n = snprintf(line, sizeof line, "mismatch in %s after call %lu: ", log->name, (unsigned long)log->calls);
  va_list arguments;
  va_start(arguments, format);
  n += vsnprintf(line + n, sizeof line - n - 1, format, arguments);
  va_end(arguments);
  if (n > (int)sizeof line - 2) n = sizeof line - 2;
  line[n++] = '\n';
  if (write(2, line, n) != n) _exit(99);
  _exit(1);
}

/* Memory for the model: by the system call itself, so that no preloaded library backs, moves or counts it. */
static inline void *raw_map(size_t length, bool shared) {
  long at = syscall(SYS_mmap, 0L, length, PROT_READ | PROT_WRITE,
                    MAP_ANONYMOUS | MAP_NORESERVE | (shared ? MAP_SHARED : MAP_PRIVATE), -1, 0L);
  if (at == -1) {
    perror("mmap of the model");
    _exit(98);
  }
  return (void *)at;
}

static inline const char *error_name(int result) {
  if (result >= 0) return "ok";
  const char *name = strerrorname_np(errno);
  return name ? name : "?";
}

static inline uint64_t word_of(uint64_t token, unsigned word) {
  return token ? (token + word) * 0x9e3779b97f4a7c15 : 0;
}

/* A page filled so that each of its words is known from one number. */
static inline void fill_page(volatile uint64_t *page, uint64_t token) {
  for (unsigned i = 0; i < PAGE / 8; i++) page[i] = word_of(token, i);
}

/* The first word that differs, from `start` in steps of `step`, or -1. */
static inline int page_differs(const volatile uint64_t *page, uint64_t token, unsigned start, unsigned step) {
  for (unsigned i = start; i < PAGE / 8; i += step)
    if (page[i] != word_of(token, i)) return (int)i;
  return -1;
}

/* What an access that faults came to. */
struct fault {
  sigjmp_buf back;
  volatile bool armed;
  volatile int signal, code;
  char *volatile address;
};
static __thread struct fault fault;

static inline void on_fault(int signal, siginfo_t *information, void *context) {
  (void)context;
  if (!fault.armed) {
    static const char text[] = "signal outside of a checked access\n";
    if (write(2, text, sizeof text - 1) < 0) _exit(97);
    struct sigaction plain = {.sa_handler = SIG_DFL};
    sigaction(signal, &plain, NULL);
    raise(signal);
    return;
  }
  fault.signal = signal;
  fault.code = information->si_code;
  fault.address = information->si_addr;
  fault.armed = false;
  siglongjmp(fault.back, 1);
}

static inline void catch_faults(void) {
  struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER};
  sigaction(SIGSEGV, &action, NULL);
  sigaction(SIGBUS, &action, NULL);
}
#endif
