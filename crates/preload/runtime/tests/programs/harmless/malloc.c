/* What malloc says of itself. On base pages a small program of one thread gets the same answers in
 * every run: glibc's. */
#include "common.h"
#include <malloc.h>
#include <sys/resource.h>

static void print_information(const char *when)
{
    struct mallinfo2 now = mallinfo2();
    printf("%s: arena %zu, ordblks %zu, smblks %zu, hblks %zu, hblkhd %zu", when, now.arena,
           now.ordblks, now.smblks, now.hblks, now.hblkhd);
    printf(", fsmblks %zu, uordblks %zu, fordblks %zu, keepcost %zu\n", now.fsmblks, now.uordblks,
           now.fordblks, now.keepcost);
}

/* Small, medium and mapped allocations, some freed. */
static void use(void)
{
    char *kept[100];
    print_information("at start");
    for (int i = 0; i < 100; i++)
        kept[i] = malloc(i * 40 + 1);
    print_information("allocated");
    for (int i = 0; i < 100; i += 2)
        free(kept[i]);
    print_information("freed half");
    char *mapped[3];
    for (int i = 0; i < 3; i++)
        mapped[i] = malloc((i + 1) * MIB);
    print_information("mapped");
    free(mapped[1]);
    print_information("unmapped one");
    kept[1] = realloc(mapped[0], 12 * MIB);
    print_information("grown");
    printf("trim %d", malloc_trim(0));
    printf(", again %d\n", malloc_trim(0));
    print_information("trimmed");
}

static int information(void)
{
    use();
    return 0;
}

static int information_in_xml(void)
{
    use();
    return malloc_info(0, stdout);
}

static int usable_sizes(void)
{
    static const size_t sizes[] = {0,    1,     24,    25,     40,     1000,    1032,     1033,
                                   5000, 65536, 131000, 140000, 1048576, 5000000, 33554432};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        void *memory = malloc(sizes[i]), *zeroed = calloc(1, sizes[i]);
        void *aligned = memalign(64, sizes[i]);
        printf("%zu: %zu %zu %zu\n", sizes[i], malloc_usable_size(memory),
               malloc_usable_size(zeroed), malloc_usable_size(aligned));
        free(memory), free(zeroed), free(aligned);
    }
    return 0;
}

static int settings(void)
{
    static const int parameters[] = {M_MXFAST,         M_TRIM_THRESHOLD, M_TOP_PAD,   M_MMAP_THRESHOLD,
                                     M_MMAP_MAX,       M_CHECK_ACTION,   M_PERTURB,   M_ARENA_TEST,
                                     M_ARENA_MAX,      12345};
    static const int values[] = {64, 1 << 20, 1 << 30, -1, 0};
    for (size_t i = 0; i < sizeof parameters / sizeof *parameters; i++) {
        printf("parameter %d:", parameters[i]);
        for (size_t j = 0; j < sizeof values / sizeof *values; j++)
            printf(" %d", mallopt(parameters[i], values[j]));
        printf("\n");
    }
    return 0;
}

/* New memory is filled with the complement of the byte, freed memory with the byte. */
static int perturbed(void)
{
    static const size_t sizes[] = {20, 3000, 9 * MIB};
    printf("mallopt %d\n", mallopt(M_PERTURB, 0xa5));
    for (int i = 0; i < 3; i++) {
        unsigned char *volatile memory = malloc(sizes[i]);
        printf("%zu: new %x %x", sizes[i], memory[0], memory[sizes[i] - 1]);
        unsigned char *volatile zeroed = calloc(1, sizes[i]);
        printf(", zeroed %x %x", zeroed[0], zeroed[sizes[i] - 1]);
        free(zeroed);
        if (i < 2) {
            free(memory);
            printf(", freed %x", memory[18]);
        }
        printf("\n");
    }
    return 0;
}

/* mallopt takes the mmap threshold away: what is large comes from the heap. */
static int without_mappings(void)
{
    printf("mallopt %d\n", mallopt(M_MMAP_MAX, 0));
    void *memory = malloc(10 * MIB);
    print_information("10 MiB of the heap");
    free(memory);
    print_information("freed");
    return 0;
}

static void print_errno(const char *what, const void *memory)
{
    printf("%s: %s, errno %d\n", what, memory ? "memory" : "none", errno);
    errno = 0;
}

static int errors(void)
{
    void *memory = (void *)16;
    volatile size_t all = SIZE_MAX, half = SIZE_MAX / 2;
    errno = 0;
    print_errno("malloc of nothing", malloc(0));
    print_errno("malloc of everything", malloc(all));
    print_errno("calloc of too many", calloc(half, 3));
    print_errno("memalign", memalign(48, 10));
    print_errno("memalign to nothing", memalign(0, 10));
    print_errno("memalign to half", memalign(half, 10));
    print_errno("aligned_alloc odd", aligned_alloc(24, 10));
    print_errno("memalign of everything", memalign(4096, all - 4096));
    print_errno("valloc of everything", valloc(all));
    print_errno("pvalloc of everything", pvalloc(all));
    print_errno("reallocarray", reallocarray(malloc(10), half, 3));
    print_errno("realloc to nothing", realloc(malloc(10), 0));
    printf("posix_memalign %d", posix_memalign(&memory, 24, 10));
    printf(" %d", posix_memalign(&memory, 64, half * 2));
    print_errno(", result", memory == (void *)16 ? 0 : memory);
    errno = 123;
    free(memset(malloc(40 * MIB), 1, 100));
    print_errno("free", 0);
    return 0;
}

/* From the heap to sizes around those from which on objects have pages of their own. */
static int resized_to_any_size(void)
{
    const size_t around[] = {2 * MIB, 4 * MIB, 8 * MIB, 16 * MIB};
    int lost = 0, failed = 0;
    for (int i = 0; i < 4; i++) {
        for (long offset = -8192; offset <= 8192; offset += 200) {
            char *memory = memset(malloc(100000), 7, 100000);
            char *resized = realloc(memory, around[i] + offset);
            failed += !resized;
            for (int at = 0; resized && at < 100000; at++)
                lost += resized[at] != 7;
            free(resized ? resized : memory);
        }
    }
    printf("lost %d, failed %d\n", lost, failed);
    return 0;
}

static void resize(char **memory, size_t size)
{
    char *resized = realloc(*memory, size);
    printf("to %zu MiB: %s\n", size / MIB, !resized ? "none" : resized == *memory ? "there" : "elsewhere");
    *memory = resized ? resized : *memory;
}

/* An object of the heap is made smaller where it is, and larger where nothing is behind it: there need not be memory for
 * a second one. */
static int resized_in_the_heap(void)
{
    mallopt(M_MMAP_MAX, 0);
    char *memory = memset(malloc(40 * MIB), 7, 40 * MIB);
    for (size_t size = 30; size >= 10; size -= 5)
        resize(&memory, size * MIB);
    size_t most = (status_kib("VmSize:") << 10) + 36 * MIB;
    struct rlimit limit = {most, most};
    setrlimit(RLIMIT_AS, &limit);
    resize(&memory, 42 * MIB);
    printf("%d %d\n", memory[0], memory[10 * MIB - 1]);
    return 0;
}

MAIN(CASE(resized_to_any_size), CASE(resized_in_the_heap), CASE(information), CASE(information_in_xml), CASE(usable_sizes), CASE(settings),
     CASE(perturbed), CASE(without_mappings), CASE(errors))
