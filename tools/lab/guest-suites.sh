#!/bin/bash
# Runs suites one after the other, goes on after a failure, and says in the end which failed.
# Arguments: of each suite its name, its working directory, what it needs to print, its environment (VARIABLE=VALUE, with
# blanks between), its arguments (the same), its executable; then the next suite.
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
        echo "== lab: $name FAILED: it passed without having run anything"
        failed+=("$name")
    fi
done
rm "$log"
if [ ${#failed[@]} != 0 ]; then
    printf '\n== lab: FAILED: %s\n' "${failed[*]}"
    exit 1
fi
printf '\n== lab: all passed\n'
