/*
 * libhugetlbfs.so.0 for programs that were linked with libhugetlbfs: its symbols and versions (see
 * hugetlbfs.map), each forwarded to libsuperpage.so. There is no logic here.
 *
 * It is C because rustc gives every cdylib a version script of its own, without names, and the
 * linker takes no second one.
 *
 * libsuperpage.so is both needed and an auxiliary filtee (DT_AUXILIARY). The loader puts a filtee in
 * front of its filter in the search order; a library that is only needed comes after libc, where
 * its malloc and mmap would replace nothing when a program preloads libhugetlbfs.so.
 */
#include "hugetlbfs.h"
#include "superpage.h"

__attribute__((constructor)) static void start(void)
{
	superpage_hugetlbfs_start();
	superpage_legacy_elfmap();
}

long gethugepagesize(void)
{
	return superpage_gethugepagesize();
}

int gethugepagesizes(long pagesizes[], int n_elem)
{
	return superpage_gethugepagesizes(pagesizes, n_elem);
}

int getpagesizes(long pagesizes[], int n_elem)
{
	return superpage_getpagesizes(pagesizes, n_elem);
}

int hugetlbfs_test_path(const char *path)
{
	return superpage_hugetlbfs_test_path(path);
}

const char *hugetlbfs_find_path(void)
{
	return superpage_hugetlbfs_find_path();
}

const char *hugetlbfs_find_path_for_size(long page_size)
{
	return superpage_hugetlbfs_find_path_for_size(page_size);
}

int hugetlbfs_unlinked_fd(void)
{
	return superpage_hugetlbfs_unlinked_fd();
}

int hugetlbfs_unlinked_fd_for_size(long page_size)
{
	return superpage_hugetlbfs_unlinked_fd_for_size(page_size);
}

void *get_huge_pages(size_t len, ghp_t flags)
{
	return superpage_get_huge_pages(len, flags);
}

void free_huge_pages(void *ptr)
{
	superpage_free_huge_pages(ptr);
}

void *get_hugepage_region(size_t len, ghr_t flags)
{
	return superpage_get_hugepage_region(len, flags);
}

void free_hugepage_region(void *ptr)
{
	superpage_free_hugepage_region(ptr);
}

/* Unversioned, as it always was: it stands in for libc's. */
int shmget(key_t key, size_t size, int shmflg)
{
	return superpage_hugetlbfs_shmget(key, size, shmflg);
}

/* The test suite of libhugetlbfs calls this one. */
void __tp_kernel_default_hugepage_size_reset(void);
void __tp_kernel_default_hugepage_size_reset(void)
{
	superpage_hugetlbfs_forget_default_size();
}
