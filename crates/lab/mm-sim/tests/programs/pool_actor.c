/* Processes that do with hugetlb memory what they are told, a line at a time on standard input:
 * "<process> <call> <numbers>". Each line is answered by "ok", "refused" or "killed" (a SIGBUS, which is
 * survived). Process 0 is this one and the only one that forks; the others get their lines from it. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE (2ul << 20)
#define PROCESSES 8
#define LINE 64
#ifndef MFD_HUGE_2MB
#define MFD_HUGE_2MB (21u << 26)
#endif
#define MAP_2MB (21 << 26)

static char *maps[64];
static int files[64];
static int lines[PROCESSES][2], answers[PROCESSES][2];
static pid_t children[PROCESSES];
static sigjmp_buf before;

static void on_bus(int number) { siglongjmp(before, number); }

static const char *perform(char *line) {
	char call[16] = "";
	long a = 0, b = 0, c = 0, d = 0, e = 0;
	sscanf(line, "%15s %ld %ld %ld %ld %ld", call, &a, &b, &c, &d, &e);
	int protection = PROT_READ | PROT_WRITE;
	if (!strcmp(call, "private")) { /* map, pages, reserve */
		int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_2MB;
		void *at = mmap(0, b * PAGE, protection, flags | (c ? 0 : MAP_NORESERVE), -1, 0);
		maps[a] = at;
		return at == MAP_FAILED ? "refused" : "ok";
	}
	if (!strcmp(call, "file")) { /* file */
		files[a] = memfd_create("pool", MFD_HUGETLB | MFD_HUGE_2MB);
		return files[a] < 0 ? "refused" : "ok";
	}
	if (!strcmp(call, "shared")) { /* map, file, start, pages, reserve */
		int flags = MAP_SHARED | (e ? 0 : MAP_NORESERVE);
		void *at = mmap(0, d * PAGE, protection, flags, files[b], c * PAGE);
		maps[a] = at;
		return at == MAP_FAILED ? "refused" : "ok";
	}
	if (!strcmp(call, "touch")) { /* map, page, write */
		if (sigsetjmp(before, 1))
			return "killed";
		volatile char *at = maps[a] + b * PAGE;
		if (c)
			*at = 1;
		else
			(void)*at;
		return "ok";
	}
	int failed = 1;
	if (!strcmp(call, "unmap")) /* map, from, pages */
		failed = munmap(maps[a] + b * PAGE, c * PAGE);
	if (!strcmp(call, "discard")) /* map, from, pages */
		failed = madvise(maps[a] + b * PAGE, c * PAGE, MADV_DONTNEED);
	if (!strcmp(call, "truncate")) /* file, pages */
		failed = ftruncate(files[a], b * PAGE);
	if (!strcmp(call, "punch")) /* file, from, pages */
		failed = fallocate(files[a], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, b * PAGE, c * PAGE);
	if (!strcmp(call, "close")) /* file */
		failed = close(files[a]);
	return failed ? "refused" : "ok";
}

static void child(int self, pid_t parent) {
	char line[LINE], answer[LINE] = "";
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(0);
	while (read(lines[self][0], line, LINE) == LINE) {
		if (!strncmp(line, "exit", 4))
			_exit(0);
		strcpy(answer, perform(line));
		if (write(answers[self][1], answer, LINE) != LINE)
			_exit(1);
	}
	_exit(0);
}

int main(void) {
	char line[LINE];
	signal(SIGBUS, on_bus);
	for (int at = 1; at < PROCESSES; at++)
		if (pipe(lines[at]) || pipe(answers[at]))
			return 1;
	while (fgets(line, LINE, stdin)) {
		int process = atoi(line), number = 0;
		char *rest = strchr(line, ' ') + 1;
		const char *answer = "ok";
		char answered[LINE];
		if (process > 0) {
			if (write(lines[process][1], memmove(line, rest, LINE - 2), LINE) != LINE)
				return 1;
			if (!strncmp(line, "exit", 4))
				waitpid(children[process], 0, 0);
			else if (read(answers[process][0], answered, LINE) == LINE)
				answer = answered;
			else
				return 1;
		} else if (sscanf(rest, "fork %d", &number) == 1) {
			pid_t parent = getpid();
			children[number] = fork();
			if (children[number] == 0)
				child(number, parent);
		} else {
			answer = perform(rest);
		}
		printf("%s\n", answer);
		fflush(stdout);
	}
	return 0;
}
