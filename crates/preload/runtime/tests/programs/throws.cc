// Exceptions through much code on superpages: the unwinder finds its tables by address.
#include <cstdio>
#include <stdexcept>
#include <string>

template <int N> __attribute__((noinline)) long level(long x)
{
    asm volatile(".rept 20000; nop; .endr");
    std::string kept(100, 'a' + N % 26);
    if (x == N)
        throw std::runtime_error(kept);
    return level<N - 1>(x) + static_cast<long>(kept.size());
}
template <> __attribute__((noinline)) long level<0>(long x) { return x; }

int main()
{
    long caught = 0;
    for (int n = 1; n <= 300; n++) {
        try {
            level<300>(n);
        } catch (const std::exception &error) {
            caught += error.what()[0] == 'a' + n % 26;
        }
    }
    std::printf("caught %ld\n", caught);
    return caught == 300 ? 0 : 1;
}
