/*
 * superpage.h - superpages for programs that ask for them.
 *
 * Link with -lsuperpage (pkg-config superpage). Manual pages: superpage(7), superpage_map(3),
 * get_huge_pages(3), get_hugepage_region(3), hugetlbfs_unlinked_fd(3), gethugepagesize(3).
 *
 * All functions may be called from any thread, before main, and inside malloc's own callers. They
 * change errno only when they fail. A call that succeeds with superpages has them: they are
 * reserved, or, where a reservation would not hold, already there. No later touch of them by this
 * process raises SIGBUS for want of a page.
 */
#ifndef SUPERPAGE_H
#define SUPERPAGE_H

#include <stddef.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the library that is loaded, e.g. "0.1.0". */
const char *superpage_version(void);

/* ---- memory: superpage_map(3) ---- */

/* Where there are too few superpages, the call fails, unless one of these is given. */
#define SUPERPAGE_OR_THP      0x01u /* memory of the same alignment, advised MADV_HUGEPAGE */
#define SUPERPAGE_OR_BASE     0x02u /* base pages */
/* Take all pages now, not at the first touch. */
#define SUPERPAGE_POPULATE    0x04u
/* Only from the node given; otherwise it is preferred. Implies that all pages are taken now. */
#define SUPERPAGE_NODE_STRICT 0x08u
/* A child of fork does not have this memory. */
#define SUPERPAGE_DONTFORK    0x10u

#define SUPERPAGE_ANY_NODE (-1)

/*
 * Zeroed private memory of `length` bytes, rounded up to whole pages, at a multiple of `page_size`
 * (0: the default size). NULL with errno and a reason.
 */
void *superpage_map(size_t length, size_t page_size, unsigned int flags, int node);

/* Gives back all of what one call has handed out: 0, or -1 with EINVAL for anything else. */
int superpage_unmap(void *address, size_t length);

/* Bytes of a range that lie on superpages now; untouched memory does not. -1: unknown, see errno. */
ssize_t superpage_coverage(const void *address, size_t length);

/* The NUMA node whose page is at an address; -1 with ENOENT where no page is yet. */
int superpage_node(const void *address);

/* ---- why a request got no superpages ---- */

enum superpage_reason {
	SUPERPAGE_REASON_NONE = 0,          /* it got them */
	SUPERPAGE_REASON_POOL_SHORT = 1,    /* the pool has too few free ones */
	SUPERPAGE_REASON_NO_POOL = 2,       /* no pool of that page size */
	SUPERPAGE_REASON_NOT_SUPPORTED = 3, /* a kernel without hugetlb */
	SUPERPAGE_REASON_NO_PERMISSION = 4,
	SUPERPAGE_REASON_CGROUP_LIMIT = 5,  /* a hugetlb limit of the cgroup */
	SUPERPAGE_REASON_NOT_ALIGNED = 6,   /* no power of two, or smaller than a page */
	SUPERPAGE_REASON_NO_MEMORY = 7,     /* memory, address space, or a limit on them */
	SUPERPAGE_REASON_NODE = 8,          /* an unknown node, or one with no free superpages */
	SUPERPAGE_REASON_BAD_ARGUMENT = 9,
	SUPERPAGE_REASON_NOT_OURS = 10,     /* the address was not handed out by this library */
	SUPERPAGE_REASON_THP_OFF = 11,      /* fell back, and transparent superpages are off */
	SUPERPAGE_REASON_UNKNOWN = 12
};

/*
 * Of this thread's last request. It is set by every function here that hands out or takes back
 * memory; a success that fell back says why it had to.
 */
int superpage_last_reason(void);
const char *superpage_reason_text(int reason);

/* ---- the functions of libhugetlbfs ---- */

/*
 * The same functions as in <hugetlbfs.h>, with the same arguments, flags, results and HUGETLB_*
 * environment. With SUPERPAGE_HUGETLBFS_NAMES defined they also have their old names.
 */
#define SUPERPAGE_GHP_DEFAULT  0x01ul
#define SUPERPAGE_GHR_STRICT   0x10000000ul
#define SUPERPAGE_GHR_FALLBACK 0x20000000ul
#define SUPERPAGE_GHR_COLOR    0x40000000ul
#define SUPERPAGE_GHR_DEFAULT  (SUPERPAGE_GHR_FALLBACK | SUPERPAGE_GHR_COLOR)

long superpage_gethugepagesize(void);
int superpage_gethugepagesizes(long pagesizes[], int n_elem);
int superpage_getpagesizes(long pagesizes[], int n_elem);
int superpage_hugetlbfs_test_path(const char *path);
const char *superpage_hugetlbfs_find_path(void);
const char *superpage_hugetlbfs_find_path_for_size(long page_size);
int superpage_hugetlbfs_unlinked_fd(void);
int superpage_hugetlbfs_unlinked_fd_for_size(long page_size);
void *superpage_get_huge_pages(size_t len, unsigned long flags);
void superpage_free_huge_pages(void *ptr);
void *superpage_get_hugepage_region(size_t len, unsigned long flags);
void superpage_free_hugepage_region(void *ptr);

/* For the compatible libhugetlbfs.so.0 only. */
void superpage_hugetlbfs_start(void);
int superpage_hugetlbfs_shmget(key_t key, size_t size, int shmflg);
void superpage_hugetlbfs_forget_default_size(void);
int superpage_legacy_elfmap(void);

#ifdef SUPERPAGE_HUGETLBFS_NAMES
typedef unsigned long ghp_t;
typedef unsigned long ghr_t;
#define GHP_DEFAULT                  SUPERPAGE_GHP_DEFAULT
#define GHR_STRICT                   SUPERPAGE_GHR_STRICT
#define GHR_FALLBACK                 SUPERPAGE_GHR_FALLBACK
#define GHR_COLOR                    SUPERPAGE_GHR_COLOR
#define GHR_DEFAULT                  SUPERPAGE_GHR_DEFAULT
#define gethugepagesize              superpage_gethugepagesize
#define gethugepagesizes             superpage_gethugepagesizes
#define getpagesizes                 superpage_getpagesizes
#define hugetlbfs_test_path          superpage_hugetlbfs_test_path
#define hugetlbfs_find_path          superpage_hugetlbfs_find_path
#define hugetlbfs_find_path_for_size superpage_hugetlbfs_find_path_for_size
#define hugetlbfs_unlinked_fd        superpage_hugetlbfs_unlinked_fd
#define hugetlbfs_unlinked_fd_for_size superpage_hugetlbfs_unlinked_fd_for_size
#define get_huge_pages               superpage_get_huge_pages
#define free_huge_pages              superpage_free_huge_pages
#define get_hugepage_region          superpage_get_hugepage_region
#define free_hugepage_region         superpage_free_hugepage_region
#endif

#ifdef __cplusplus
}
#endif

#endif /* SUPERPAGE_H */
