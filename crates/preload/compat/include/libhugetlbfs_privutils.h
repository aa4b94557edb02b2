/*
 * libhugetlbfs_privutils.h - the hugetlb pools, for tests written for libhugetlbfs. Link with
 * -lhugetlbfs_privutils. Its own test suite includes this header; new programs read
 * /sys/kernel/mm/hugepages themselves, or call superpage.h.
 *
 * Page sizes are in bytes, counters in pages. Each function that fails returns -1 and sets errno:
 * that of open, read or write for a file that is not there or may not be written (ENOENT: there
 * are no pages of this size; EACCES: root only), EINVAL for an argument or a text that is no
 * number. Nothing is printed.
 */
#ifndef _LIBHUGETLBFS_PRIVUTILS_H
#define _LIBHUGETLBFS_PRIVUTILS_H

/* The symbols have these names; programs use those of the functions. */
#define get_huge_page_counter        __pu_get_huge_page_counter
#define set_huge_page_counter        __pu_set_huge_page_counter
#define set_nr_hugepages             __pu_set_nr_hugepages
#define set_nr_overcommit_hugepages  __pu_set_nr_overcommit_hugepages
#define arch_has_slice_support       __pu_arch_has_slice_support
#define kernel_has_hugepages         __pu_kernel_has_hugepages
#define kernel_has_overcommit        __pu_kernel_has_overcommit
#define read_meminfo                 __pu_read_meminfo
#define kernel_default_hugepage_size __pu_kernel_default_hugepage_size
#define read_nr_overcommit           __pu_read_nr_overcommit
#define restore_overcommit_pages     __pu_restore_overcommit_pages
#define hugetlbfs_test_feature       __pu_hugetlbfs_test_feature
#define test_compare_kver            __pu_test_compare_kver

#ifdef __cplusplus
extern "C" {
#endif

/* Pages of one size: */
enum {
	HUGEPAGES_TOTAL,        /* in the pool, surplus included */
	HUGEPAGES_TOTAL_MEMPOL, /* the same; written, they come from the nodes of the caller's memory policy */
	HUGEPAGES_FREE,         /* not in use, reserved ones included */
	HUGEPAGES_RSVD,         /* free and reserved */
	HUGEPAGES_SURP,         /* surplus */
	HUGEPAGES_OC,           /* the most that may be surplus */
	HUGEPAGES_MAX_COUNTERS,
};

/* A counter as it is now, in pages. */
long get_huge_page_counter(long pagesize, unsigned int counter);
/* Writes a counter: TOTAL, TOTAL_MEMPOL or OC; the kernel's others are read-only (EACCES). 0 says that the kernel took
 * the number, not that it found as many pages: read the counter again. */
int set_huge_page_counter(long pagesize, unsigned int counter, unsigned long val);
int set_nr_hugepages(long pagesize, unsigned long val);
int set_nr_overcommit_hugepages(long pagesize, unsigned long val);
long read_nr_overcommit(long page_size);
/* Writes back what read_nr_overcommit returned; its -1 changes nothing. */
void restore_overcommit_pages(long page_size, long oc_pool);

/* A line of /proc/meminfo by its beginning, with the colon: "MemFree:". In the line's own unit, which is kB, or pages
 * for HugePages_*. */
long read_meminfo(const char *tag);
/* Bytes of a page of the default size. */
long kernel_default_hugepage_size(void);

/* 1 or 0: whether there is a default size; whether its pool may have surplus pages. */
int kernel_has_hugepages(void);
int kernel_has_overcommit(void);
/* 1 on 64-bit PowerPC, where a part of the address space (a slice) has pages of one size; 0 elsewhere. */
int arch_has_slice_support(void);

/* 1 or 0: what the kernel does. All three have come by 2.6.32, so this is whether there are hugetlb pages. */
enum {
	HUGETLB_FEATURE_PRIVATE_RESV,   /* private mappings reserve pages */
	HUGETLB_FEATURE_SAFE_NORESERVE, /* MAP_NORESERVE leaves others' reservations alone */
	HUGETLB_FEATURE_MAP_HUGETLB,    /* mmap has MAP_HUGETLB */
	HUGETLB_FEATURE_NR,
};
int hugetlbfs_test_feature(int feature_code);

/* -1, 0 or 1: whether kernel version `a` ("6.1", "2.6.27-rc3", what uname -r prints) is older than `b`, as old, newer.
 * A part that is missing is 0; -rcN is older than the release; any other suffix says nothing. -2 with EINVAL for what does
 * not begin with a digit. */
int test_compare_kver(const char *a, const char *b);

#ifdef __cplusplus
}
#endif

#endif /* _LIBHUGETLBFS_PRIVUTILS_H */
