// Threads that allocate, hand memory to each other and free it, while the process forks.
#include <sys/wait.h>
#include <unistd.h>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

struct Block {
    std::vector<uint32_t> words;
    uint32_t seed;
    Block(size_t count, uint32_t seed) : words(count), seed(seed) {
        for (size_t i = 0; i < count; i++) words[i] = seed * 2654435761u + uint32_t(i);
    }
    bool intact() const {
        for (size_t i = 0; i < words.size(); i++)
            if (words[i] != seed * 2654435761u + uint32_t(i)) return false;
        return true;
    }
};

int main(int, char **arguments) {
    const int scale = atoi(arguments[1]), rounds = 1500 * scale;
    std::mutex lock;
    std::vector<std::unique_ptr<Block>> handed;
    std::atomic<uint64_t> sum{0}, broken{0};
    auto work = [&](uint32_t id) {
        std::map<uint32_t, std::unique_ptr<Block>> mine;
        uint32_t random = id + 1;
        for (int round = 0; round < rounds; round++) {
            random = random * 1664525u + 1013904223u;
            size_t count = (random >> 8) % 100 == 0 ? 700000 : (random >> 16) % 3000;
            auto block = std::make_unique<Block>(count, random);
            sum += count;
            std::unique_ptr<Block> other;
            if (round % 3 == 0) {
                std::lock_guard guard(lock);
                handed.push_back(std::move(block));
                if (handed.size() > 50) { other = std::move(handed.front()); handed.erase(handed.begin()); }
            } else {
                mine[random % 97] = std::move(block);
            }
            if (other && !other->intact()) broken++;
            if (round % 64 == 0)
                for (auto &[key, block] : mine) if (!block->intact()) broken++;
        }
    };
    std::vector<std::thread> threads;
    for (uint32_t id = 0; id < 6; id++) threads.emplace_back(work, id);
    auto own = std::make_unique<Block>(3 << 20, 77);
    for (int round = 0; round < 8 * scale; round++) {
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            bool fine = own->intact();
            std::vector<std::string> more;
            for (int i = 0; i < 2000; i++) more.push_back(std::string(i % 500, 'x'));
            for (auto &word : own->words) word = 0;
            _exit(fine && more.size() == 2000 ? 5 : 6);
        }
        int status = 0;
        waitpid(child, &status, 0);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 5) { printf("child: %d\n", status); broken++; }
        if (!own->intact()) { printf("the child wrote to its parent\n"); broken++; }
    }
    for (auto &thread : threads) thread.join();
    printf("%llu words, %llu broken\n", (unsigned long long)sum, (unsigned long long)broken);
    return broken ? 1 : 11;
}
