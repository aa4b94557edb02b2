/* A service: random updates of SIZE MiB of memory, whose number is written to FILE every 10 ms. The memory begins on
 * base pages, except HUGE MiB more that begin on superpages. Usage: SIZE HUGE FILE. Ends after ten minutes. SIGUSR1:
 * executes itself. SIGUSR2: forks a child that lives for three seconds, and waits for
 * its end: a write would split what both share. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SUPERPAGE (2UL << 20)

static uint64_t *memory(size_t bytes, int huge)
{
	char *all = mmap(NULL, bytes + SUPERPAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (all == MAP_FAILED)
		exit(2);
	char *start = (char *)(((uintptr_t)all + SUPERPAGE - 1) & ~(SUPERPAGE - 1));
	if (huge && bytes > 0)
		madvise(start, bytes, MADV_HUGEPAGE);
	if (bytes > 0)
		memset(start, 1, bytes);
	return (uint64_t *)start;
}

static volatile sig_atomic_t asked;

static void ask(int signal)
{
	asked = signal;
}

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec * 1e-9;
}

int main(int argc, char **argv)
{
	if (argc != 4)
		return 2;
	size_t bytes = strtoul(argv[1], NULL, 10) << 20, huge = strtoul(argv[2], NULL, 10) << 20;
	memory(huge, 1);
	prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
	uint64_t *table = memory(bytes, 0), state = 88172645463325252ULL, done = 0, mask = bytes / 8 - 1;
	prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0);
	signal(SIGUSR1, ask);
	signal(SIGUSR2, ask);
	int file = open(argv[3], O_WRONLY | O_CREAT | O_TRUNC, 0644);
	double began = now(), next = began;
	while (now() < began + 600) {
		for (int i = 0; i < 4096; i++) {
			state ^= state << 13;
			state ^= state >> 7;
			state ^= state << 17;
			table[(state >> 11) & mask] += state;
		}
		if (asked == SIGUSR1) {
			sigset_t none;
			sigemptyset(&none);
			sigprocmask(SIG_SETMASK, &none, NULL);
			execv("/proc/self/exe", argv);
		}
		if (asked == SIGUSR2) {
			if (fork() == 0) {
				sleep(3);
				_exit(0);
			}
			wait(NULL);
		}
		asked = 0;
		done += 4096;
		if (now() >= next) {
			char text[32];
			int length = snprintf(text, sizeof text, "%020llu\n", (unsigned long long)done);
			if (pwrite(file, text, length, 0) != length)
				return 1;
			next = now() + 0.01;
		}
	}
	return 0;
}
