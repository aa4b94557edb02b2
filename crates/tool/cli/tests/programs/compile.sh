# gcc and g++ on generated sources: the object files are compared, and what they compute.
set -eu
scale=$1
awk -v n=$((60 * scale)) 'BEGIN {
    print "#include <stdio.h>\n#include <string.h>";
    for (i = 0; i < n; i++) {
        printf "static unsigned table%d[16] = {", i;
        for (j = 0; j < 16; j++) printf "%d,", (i * 31 + j * 17) % 251;
        printf "};\nunsigned f%d(unsigned a, const char *s) {\n", i;
        printf "  unsigned sum = a; size_t n = strlen(s);\n";
        printf "  for (size_t i = 0; i < n; i++) { sum = sum * %d + (unsigned char)s[i];", 31 + i % 7;
        printf " if (sum & %d) sum ^= table%d[sum %% 16]; else switch (sum %% 5) {", 1 + i % 13, i;
        printf " case 0: sum += 3; break; case 1: sum ^= sum >> 7; break; default: sum--; } }\n";
        printf "  return sum;\n}\n";
    }
    print "int main(void) { unsigned sum = 1;";
    for (i = 0; i < n; i++) printf "sum ^= f%d(sum, \"text number %d\");\n", i, i;
    print "printf(\"%u\\n\", sum); return sum % 7; }";
}' > large.c
gcc -O2 -c large.c -o large.o
gcc large.o -o large
status=0; ./large || status=$?
echo "large ended with $status"
cat > small.cpp <<'CPP'
#include <algorithm>
#include <iostream>
#include <map>
#include <string>
#include <vector>
template <int N> struct Sum { static constexpr int value = N + Sum<N - 1>::value; };
template <> struct Sum<0> { static constexpr int value = 0; };
int main() {
    std::map<std::string, std::vector<int>> all;
    for (int i = 0; i < 100000; i++) all[std::to_string(i % 997)].push_back(i % 40000 * Sum<300>::value);
    long sum = 0;
    for (auto &[name, list] : all) { std::sort(list.rbegin(), list.rend()); sum += name.size() * list[3]; }
    std::cout << sum << '\n';
}
CPP
g++ -std=c++17 -O2 -c small.cpp -o small.o
g++ small.o -o small
./small
cksum large.o small.o large small
