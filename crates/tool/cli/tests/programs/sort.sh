# A sort in several threads that also writes temporary files, and without them.
set -eu
scale=$1
awk -v n=$((400000 * scale)) 'BEGIN { s = 1; for (i = 0; i < n; i++) {
    s = (s * 69069 + 1) % 4294967296; printf "%u line %d\n", s, i } }' > lines
cksum lines
LC_ALL=C sort --parallel=4 -S 200M lines | cksum
LC_ALL=C sort --parallel=2 -S 4M -T . -k3,3nr lines | cksum
LC_ALL=C sort -n -u lines | tail -n 3
LC_ALL=C sort -c lines 2>/dev/null
