#!/bin/bash
# Runs suites one after the other, also after a failure, and prints at the end which failed. Six
# arguments for each suite: name, working directory, pattern that its output must contain,
# environment (VARIABLE=VALUE, separated by blanks), arguments (separated by blanks), executable.
failed=()
log=$(mktemp) || exit
while [ $# -ge 6 ]; do
    name=$1 directory=$2 evidence=$3 executable=$6
    read -ra environment <<< "$4"
    read -ra arguments <<< "$5"
    shift 6
    printf '\n== lab: %s\n' "$name"
    (cd "$directory" && exec env "${environment[@]}" "$executable" "${arguments[@]}") 2>&1 | tee "$log"
    status=${PIPESTATUS[0]}
    if [ "$status" != 0 ]; then
        echo "== lab: $name FAILED with exit status $status"
        failed+=("$name")
    elif ! grep -Eq -- "$evidence" "$log"; then
        echo "== lab: $name FAILED: it passed without running a test"
        failed+=("$name")
    fi
done
rm "$log"
if [ ${#failed[@]} != 0 ]; then
    printf '\n== lab: FAILED: %s\n' "${failed[*]}"
    exit 1
fi
printf '\n== lab: all passed\n'
