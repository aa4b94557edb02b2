# tar and xz there and back, in threads; digests and ciphers.
set -eu
scale=$1
mkdir tree
for i in 1 2 3 4 5 6 7 8; do seq $i $((30000 * scale + i)) > "tree/$i"; done
tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -cf tree.tar tree
xz -T2 --block-size=1MiB -3 -k tree.tar
xz -dc tree.tar.xz | cmp - tree.tar
cksum tree.tar tree.tar.xz
mkdir back && tar -xf tree.tar.xz -C back && diff -r tree back/tree
gzip -n -9 < tree.tar | cksum
if command -v openssl > /dev/null; then
    openssl dgst -sha256 tree.tar
    openssl enc -aes-256-cbc -K 00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff \
        -iv 00112233445566778899aabbccddeeff -in tree.tar | cksum
fi
tar -tf no-such-archive.tar 2>/dev/null
