/*
 * What libhugetlbfs.a has of its own (scripts/libhugetlbfs-archive): it gives a program the calls and
 * nothing else, so what would move memory that the program has already does nothing, and says so.
 * See docs/decisions/libhugetlbfs.md#7.
 */
#define _GNU_SOURCE
#include "superpage.h"

#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

/* Read in place of the loader's list of objects and of the library's own dynamic section. */
const struct { int version; const void *first; } superpage_no_objects = {0, NULL};
const size_t superpage_no_dynamic[2] = {0, 0};

/*
 * Read in place of __libc_stack_end: argc, argv and the environment as the kernel left them, which that is only where
 * there is a loader. Null until constructors run.
 */
const size_t *superpage_arguments;

__attribute__((constructor(101))) static void note_arguments(int argc, char **argv)
{
	(void)argc;
	superpage_arguments = (const size_t *)argv - 1;
}

static void does_nothing(const char *name, const char *remedy)
{
	const char *value = secure_getenv(name);

	if (value && strcasecmp(value, "no") != 0)
		fprintf(stderr,
			"libhugetlbfs: WARNING: %s=%s does nothing in a program linked with libhugetlbfs.a: %s\n",
			name, value, remedy);
}

/* What the constructor calls (hugetlbfs.c). A segment that is moved may not hold the code and data that move it. */
int superpage_legacy_elfmap(void)
{
	const char *verbose = secure_getenv("HUGETLB_VERBOSE");

	if (!verbose || atoi(verbose) >= 2) {
		does_nothing("HUGETLB_MORECORE",
			     "set GLIBC_TUNABLES=glibc.malloc.hugetlb=2, or link with libhugetlbfs.so");
		does_nothing("HUGETLB_ELFMAP", "link with libhugetlbfs.so");
	}
	return -1;
}
