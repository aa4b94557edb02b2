/*
 * libhugetlbfs_privutils.so: counters of the hugetlb pools for libhugetlbfs' test suite; what each
 * function returns is in the header.
 *
 * Files are read and written through libc's open, read and write, because tests put functions of
 * their own in front of those.
 */
#include "libhugetlbfs_privutils.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Larger than any counter's file, and than /proc/meminfo (1.5 KiB) by far. */
#define TEXT 16384

static const char *const counter_files[HUGEPAGES_MAX_COUNTERS] = {
	[HUGEPAGES_TOTAL] = "nr_hugepages",
	[HUGEPAGES_TOTAL_MEMPOL] = "nr_hugepages_mempolicy",
	[HUGEPAGES_FREE] = "free_hugepages",
	[HUGEPAGES_RSVD] = "resv_hugepages",
	[HUGEPAGES_SURP] = "surplus_hugepages",
	[HUGEPAGES_OC] = "nr_overcommit_hugepages",
};

/* Closes without changing errno. */
static void done_with(int fd)
{
	int error = errno;

	close(fd);
	errno = error;
}

/* The whole file as a C string: its length, or -1. */
static ssize_t read_file(const char *path, char text[TEXT])
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t length = 0;
	ssize_t got = -1;

	if (fd < 0)
		return -1;
	while (length < TEXT - 1) {
		got = read(fd, text + length, TEXT - 1 - length);
		if (got <= 0)
			break;
		length += got;
	}
	done_with(fd);
	text[length] = '\0';
	return got < 0 ? -1 : (ssize_t)length;
}

static long number(const char *text)
{
	char *end;
	long value = strtol(text, &end, 10);

	if (end != text && value >= 0)
		return value;
	errno = EINVAL;
	return -1;
}

/* The file of a counter; -1 if there is no such counter or size. */
static int counter_path(char path[128], long pagesize, unsigned int counter)
{
	if (counter < HUGEPAGES_MAX_COUNTERS && pagesize >= 1024) {
		snprintf(path, 128, "/sys/kernel/mm/hugepages/hugepages-%ldkB/%s", pagesize / 1024,
			 counter_files[counter]);
		return 0;
	}
	errno = EINVAL;
	return -1;
}

long get_huge_page_counter(long pagesize, unsigned int counter)
{
	char path[128], text[TEXT];

	if (counter_path(path, pagesize, counter) || read_file(path, text) < 0)
		return -1;
	return number(text);
}

int set_huge_page_counter(long pagesize, unsigned int counter, unsigned long val)
{
	char path[128], text[32];
	ssize_t length, written;
	int fd;

	if (counter_path(path, pagesize, counter))
		return -1;
	if (counter != HUGEPAGES_TOTAL && counter != HUGEPAGES_TOTAL_MEMPOL && counter != HUGEPAGES_OC) {
		errno = EACCES;
		return -1;
	}
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	length = snprintf(text, sizeof text, "%lu", val);
	written = write(fd, text, length);
	done_with(fd);
	return written == length ? 0 : -1;
}

int set_nr_hugepages(long pagesize, unsigned long val)
{
	return set_huge_page_counter(pagesize, HUGEPAGES_TOTAL, val);
}

int set_nr_overcommit_hugepages(long pagesize, unsigned long val)
{
	return set_huge_page_counter(pagesize, HUGEPAGES_OC, val);
}

long read_nr_overcommit(long page_size)
{
	return get_huge_page_counter(page_size, HUGEPAGES_OC);
}

void restore_overcommit_pages(long page_size, long oc_pool)
{
	if (oc_pool >= 0)
		set_nr_overcommit_hugepages(page_size, oc_pool);
}

long read_meminfo(const char *tag)
{
	char text[TEXT];
	size_t length = strlen(tag);

	if (read_file("/proc/meminfo", text) < 0)
		return -1;
	for (const char *line = text; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (length && strncmp(line, tag, length) == 0)
			return number(line + length);
	}
	errno = EINVAL;
	return -1;
}

long kernel_default_hugepage_size(void)
{
	long kib = read_meminfo("Hugepagesize:");

	return kib < 0 ? -1 : kib * 1024;
}

int kernel_has_hugepages(void)
{
	return kernel_default_hugepage_size() > 0;
}

int kernel_has_overcommit(void)
{
	return read_nr_overcommit(kernel_default_hugepage_size()) >= 0;
}

int arch_has_slice_support(void)
{
#ifdef __powerpc64__
	return 1;
#else
	return 0;
#endif
}

int hugetlbfs_test_feature(int feature_code)
{
	if (feature_code >= 0 && feature_code < HUGETLB_FEATURE_NR)
		return kernel_has_hugepages();
	errno = EINVAL;
	return -1;
}

/* Four numbers, and that of the release candidate, which a release's exceeds. */
static void kernel_version(const char *text, unsigned long parts[5])
{
	for (int part = 0; part < 5; part++)
		parts[part] = part < 4 ? 0 : ~0ul;
	for (int part = 0; part < 4 && *text >= '0' && *text <= '9'; part++) {
		char *end;

		parts[part] = strtoul(text, &end, 10);
		text = end + (*end == '.');
		if (*end != '.')
			break;
	}
	if (strncmp(text, "-rc", 3) == 0)
		parts[4] = strtoul(text + 3, NULL, 10);
}

int test_compare_kver(const char *a, const char *b)
{
	unsigned long old[5], new[5];

	if (*a < '0' || *a > '9' || *b < '0' || *b > '9') {
		errno = EINVAL;
		return -2;
	}
	kernel_version(a, old);
	kernel_version(b, new);
	for (int part = 0; part < 5; part++)
		if (old[part] != new[part])
			return old[part] < new[part] ? -1 : 1;
	return 0;
}
