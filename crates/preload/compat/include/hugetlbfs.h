/*
 * hugetlbfs.h - what programs written for libhugetlbfs include. Link with -lhugetlbfs (the
 * compatible library); new programs include superpage.h.
 */
#ifndef _HUGETLBFS_H
#define _HUGETLBFS_H

#include <stddef.h>

#define HUGETLBFS_MAGIC    0x958458f6
#define PF_LINUX_HUGETLB   0x100000

#ifdef __cplusplus
extern "C" {
#endif

typedef unsigned long ghp_t;
#define GHP_DEFAULT  ((ghp_t)0x01UL)
#define GHP_MASK     (GHP_DEFAULT)

typedef unsigned long ghr_t;
#define GHR_STRICT   ((ghr_t)0x10000000UL)
#define GHR_FALLBACK ((ghr_t)0x20000000UL)
#define GHR_COLOR    ((ghr_t)0x40000000UL)
#define GHR_DEFAULT  (GHR_FALLBACK | GHR_COLOR)
#define GHR_MASK     (GHR_FALLBACK | GHR_STRICT | GHR_COLOR)

long gethugepagesize(void);
int gethugepagesizes(long pagesizes[], int n_elem);
int getpagesizes(long pagesizes[], int n_elem);
int hugetlbfs_test_path(const char *path);
const char *hugetlbfs_find_path(void);
const char *hugetlbfs_find_path_for_size(long page_size);
int hugetlbfs_unlinked_fd(void);
int hugetlbfs_unlinked_fd_for_size(long page_size);
void *get_huge_pages(size_t len, ghp_t flags);
void free_huge_pages(void *ptr);
void *get_hugepage_region(size_t len, ghr_t flags);
void free_hugepage_region(void *ptr);

#ifdef __cplusplus
}
#endif

#endif /* _HUGETLBFS_H */
