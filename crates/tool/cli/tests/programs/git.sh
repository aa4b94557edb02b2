# A repository with many commits, packed and looked through.
set -eu
scale=$1
export GIT_AUTHOR_DATE='2020-01-01T00:00:00Z' GIT_COMMITTER_DATE='2020-01-01T00:00:00Z'
export GIT_AUTHOR_NAME=A GIT_AUTHOR_EMAIL=a@example.org GIT_COMMITTER_NAME=A
export GIT_COMMITTER_EMAIL=a@example.org GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null HOME=.
git init -q -b main repository
cd repository
git config pack.threads 2
git config gc.autoDetach false
seq 1 $((60000 * scale)) > numbers
for round in 1 2 3 4 5 6; do
    for file in 1 2 3 4 5 6 7 8 9 10; do seq $((round * file)) $((2000 + round)) > "file$file"; done
    sed -i "${round}s/.*/changed in round $round/" numbers
    git add .
    git commit -q -m "round $round"
done
git gc -q --aggressive
git log --stat --format='%H %s' | cksum
git log -p | cksum
git fsck --full 2>&1
git rev-parse HEAD
git count-objects -v | grep -v size
git diff HEAD~3 | cksum
git blame numbers | cksum
git status --short
git checkout -q no-such-branch 2>/dev/null || exit 9
