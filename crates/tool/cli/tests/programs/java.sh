# The compiler, then the program on two collectors.
set -eu
javac -d . "$2/Threads.java"
for collector in ${3:-default -XX:+UseSerialGC}; do
    status=0
    if [ "$collector" = default ]; then java -Xmx512m -cp . Threads "$1" || status=$?
    else java "$collector" -Xmx512m -cp . Threads "$1" || status=$?; fi
    echo "ended with $status"
done
exit "$status"
