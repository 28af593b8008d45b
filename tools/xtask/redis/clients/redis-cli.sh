#!/usr/bin/env bash
# redis-cli: HOST PORT CUT_PORT MODE
set -euo pipefail
host=$1 port=$2 cut_port=$3 mode=$4
cli() { redis-cli -h "$host" -p "$port" "$@"; }
cut_connections() {
    exec 3<>"/dev/tcp/$host/$cut_port"
    cat <&3 >/dev/null
    exec 3<&-
}
expect() {
    if [ "$1" != "$2" ]; then
        echo "$3: expected '$1', got '$2'"
        exit 1
    fi
}
expect PONG "$(cli PING)" PING
if [ "$mode" = full ]; then
    expect OK "$(cli SET farcore:cli value)" SET
    expect value "$(cli GET farcore:cli)" GET
    expect "farcore:cli" "$(cli -3 KEYS farcore:cli)" "KEYS with RESP3"
    lines=$(for i in $(seq 1000); do echo "SET farcore:cli:$i $i"; done | cli --pipe)
    expect "errors: 0, replies: 1000" "${lines##*$'\n'}" "--pipe"
    answers=$( (
        echo "GET farcore:cli:1000"
        sleep 0.2
        cut_connections
        echo "GET farcore:cli:2"
        echo "GET farcore:cli:1"
    ) | cli 2>&1)
    # The first command after the cut may be lost: redis-cli notices by it.
    expect 1000 "$(head -n 1 <<<"$answers")" "GET before the cut"
    expect 1 "$(tail -n 1 <<<"$answers")" "GET after the cut"
fi
echo "$(redis-cli --version): connect, set, get, RESP3, pipeline of 1000, reconnect"
