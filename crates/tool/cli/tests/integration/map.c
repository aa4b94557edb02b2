/* Memory of one kind, named by the first argument: prints its first address and stops. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SUPERPAGE (2UL << 20)
#define SIZE (4 * SUPERPAGE)

static void fail(const char *what) {
  perror(what);
  exit(77); /* not possible here */
}

static char *map(size_t size, int flags, int fd) {
  char *at = mmap(NULL, size, PROT_READ | PROT_WRITE, flags, fd, 0);
  if (at == MAP_FAILED) fail("mmap");
  return at;
}

/* `size` bytes at a multiple of a superpage plus `offset`, with nothing mapped beside them. */
static char *apart(size_t size, size_t offset, int flags, int fd) {
  char *all = map(size + 3 * SUPERPAGE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
  char *at = (char *)(((unsigned long)all + 2 * SUPERPAGE - 1) & -SUPERPAGE) + offset;
  munmap(all, size + 3 * SUPERPAGE);
  if (mmap(at, size, PROT_READ | PROT_WRITE, flags | MAP_FIXED_NOREPLACE, fd, 0) != at) fail("mmap");
  return at;
}

static void touch(volatile char *at, size_t size) {
  for (size_t i = 0; i < size; i += 4096) at[i] = 1;
}

/* Advised memory that is on base pages: the advice came after the touch. */
static char *late(void) {
  char *at = apart(SIZE, 0, MAP_PRIVATE | MAP_ANONYMOUS, -1);
  if (madvise(at, SIZE, MADV_NOHUGEPAGE)) fail("MADV_NOHUGEPAGE");
  touch(at, SIZE);
  if (madvise(at, SIZE, MADV_HUGEPAGE)) fail("MADV_HUGEPAGE");
  return at;
}

int main(int count, char **arguments) {
  const char *kind = count > 1 ? arguments[1] : "";
  const int anonymous = MAP_PRIVATE | MAP_ANONYMOUS;
#define IS(name) (strcmp(kind, name) == 0)
  char *at = NULL;
  if (IS("advised")) {
    at = apart(SIZE, 0, anonymous, -1);
    madvise(at, SIZE, MADV_HUGEPAGE);
    touch(at, SIZE);
  } else if (IS("refused")) {
    at = apart(SIZE, 0, anonymous, -1);
    madvise(at, SIZE, MADV_NOHUGEPAGE);
    touch(at, SIZE);
  } else if (IS("plain")) {
    at = apart(SIZE, 0, anonymous, -1);
    touch(at, SIZE);
  } else if (IS("small")) {
    at = apart(SUPERPAGE, 4096, anonymous, -1);
    madvise(at, SUPERPAGE, MADV_HUGEPAGE);
    touch(at, SUPERPAGE);
  } else if (IS("edge")) {
    at = apart(SUPERPAGE + 8192, SUPERPAGE - 8192, anonymous, -1);
    madvise(at, SUPERPAGE + 8192, MADV_HUGEPAGE);
    touch(at, 8192);
  } else if (IS("untouched")) {
    at = apart(SIZE, 0, anonymous, -1);
  } else if (IS("read")) {
    at = apart(SIZE, 0, anonymous, -1);
    volatile char *from = at;
    for (size_t i = 0; i < SIZE; i += 4096) (void)from[i];
  } else if (IS("off")) {
    if (prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)) fail("prctl");
    at = late();
  } else if (IS("file") || IS("copied")) {
    char name[] = "/var/tmp/superpage-map-XXXXXX";
    int fd = mkstemp(name);
    if (fd < 0 || ftruncate(fd, SIZE)) fail(name);
    unlink(name);
    at = apart(SIZE, 0, IS("file") ? MAP_SHARED : MAP_PRIVATE, fd);
    touch(at, SIZE);
  } else if (IS("shared")) {
    at = apart(SIZE, 0, MAP_SHARED | MAP_ANONYMOUS, -1);
    touch(at, SIZE);
  } else if (IS("memfd")) {
    int fd = memfd_create("a\n\033[2Jb", 0);
    if (fd < 0 || ftruncate(fd, SIZE)) fail("memfd_create");
    at = apart(SIZE, 0, MAP_SHARED, fd);
    touch(at, SIZE);
  } else if (IS("pool")) {
    at = map(SIZE, anonymous | MAP_HUGETLB, -1);
    touch(at, SIZE);
  } else if (IS("kernel")) {
    at = (char *)getauxval(AT_SYSINFO_EHDR);
    if (at == NULL) fail("no vdso");
  } else if (IS("stack")) {
    at = (char *)((unsigned long)&at & -4096UL);
  } else if (IS("locked")) {
    at = apart(SIZE, 0, anonymous, -1);
    if (mlock(at, SIZE)) fail("mlock");
  } else if (IS("userfault")) {
    at = late();
    int fd = syscall(SYS_userfaultfd, O_CLOEXEC);
    struct uffdio_api api = {.api = UFFD_API};
    if (fd < 0 || ioctl(fd, UFFDIO_API, &api)) fail("userfaultfd");
    struct uffdio_register range = {{(unsigned long)at, SIZE}, UFFDIO_REGISTER_MODE_MISSING, 0};
    if (ioctl(fd, UFFDIO_REGISTER, &range)) fail("UFFDIO_REGISTER");
  } else if (IS("late")) {
    at = late();
  } else if (IS("forked")) {
    /* The child is there before the advice, so khugepaged never meets memory of one process. */
    at = apart(SIZE, 0, anonymous, -1);
    madvise(at, SIZE, MADV_NOHUGEPAGE);
    touch(at, SIZE);
    int end[2];
    if (pipe(end)) fail("pipe");
    pid_t child = fork();
    if (child < 0) fail("fork");
    if (child == 0) {
      /* Until the parent has ended. */
      close(end[1]);
      char byte;
      _exit(read(end[0], &byte, 1) != 0);
    }
    madvise(at, SIZE, MADV_HUGEPAGE);
  } else {
    fprintf(stderr, "%s: no such kind\n", kind);
    return 2;
  }
  printf("%lx\n", (unsigned long)at);
  fflush(stdout);
  raise(SIGSTOP);
  return 7;
}
