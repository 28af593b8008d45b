#!/usr/bin/env bash
# redis-cli as a person starts it, on a terminal: it requests the documentation of all commands.
# HOST PORT CUT_PORT MODE
set -euo pipefail
export TERM=dumb
answer=$( (
    echo "ECHO it-answers"
    echo "QUIT"
) | script --quiet --return --command "redis-cli -h $1 -p $2" /dev/null | tr -d '\r')
if ! grep -q '"it-answers"' <<<"$answer"; then
    echo "no answer on a terminal: $(tr '\n' ' ' <<<"$answer")"
    exit 1
fi
echo "$(redis-cli --version) on a terminal: connect, echo"
