/* An allocator of a program's own, as a library: hands out pieces of one array, and counts. */
#include <stddef.h>
#include <string.h>

static _Alignas(16) char memory[64 << 20];
static size_t used;
size_t allocator_calls;

static size_t *header(void *object) { return (size_t *)object - 2; }
void *malloc(size_t size) {
    allocator_calls++;
    size = (size + 31) & ~(size_t)15;
    if (used + size > sizeof memory) return 0;
    void *object = memory + used + 16;
    used += size;
    *header(object) = size - 16;
    return object;
}
void free(void *object) {
    /* What is not from here would have no size. */
    if (object && (char *)object - memory > (ptrdiff_t)sizeof memory) __builtin_trap();
}
void *calloc(size_t count, size_t size) {
    void *object = malloc(count * size);
    return object ? memset(object, 0, count * size) : 0;
}
void *realloc(void *object, size_t size) {
    void *fresh = malloc(size);
    if (fresh && object) memcpy(fresh, object, *header(object) < size ? *header(object) : size);
    return fresh;
}
size_t malloc_usable_size(void *object) { return object ? *header(object) : 0; }
