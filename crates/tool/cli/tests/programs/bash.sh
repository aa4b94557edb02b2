# Three hundred forks, pipes, substitutions and background jobs.
scale=$1
declare -A table
for ((i = 0; i < 20000 * scale; i++)); do table[k$i]=$((i * i % 1013)); done
sum=0
for ((i = 0; i < 100 * scale; i++)); do
    value=$(echo "${table[k$((i * 97))]}")
    sum=$((sum + value))
    (sum=$((sum * 2)); exit $((i % 7))) || sum=$((sum + $?))
    printf '%s\n' "$value" | { read -r line; exit $((line % 5)); }
    sum=$((sum + $?))
done
echo "sum $sum ${#table[@]}"
for job in 1 2 3 4 5; do (exit "$job") & jobs+=($!); done
for pid in "${jobs[@]}"; do wait "$pid"; echo "job $?"; done
seq 1 20000 | while read -r n; do echo $((n * 3)); done | tail -n 1
exit 17
