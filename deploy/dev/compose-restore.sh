#!/usr/bin/env bash
# Restores a backup into the system of docker-compose.yml: stops the services, restores, starts them.
#
#   FILE=backups/skandha-….backup compose-restore.sh docker compose
#   FILE=backups/skandha-….backup compose-restore.sh docker-compose
#
#   REPLACE=yes   remove what the system holds; without it, it must be empty
set -euo pipefail
cd "$(dirname "$0")/../.."
say() { printf 'restore: %s\n' "$*"; }
fail() { say "$*" >&2; exit 1; }

file=${FILE:-}
[ -n "$file" ] || fail "FILE is not set; name the archive, e.g. FILE=backups/$(ls -1 backups 2>/dev/null | tail -n 1)"
[ -r "$file" ] || fail "$file cannot be read"
flags=()
[ "${REPLACE:-}" != yes ] || flags+=(--replace)

services=$("$@" config --services | grep -vxE 'nats|redis|cli')
"$@" up -d --no-build nats
say "reading the archive"
"$@" run --rm -T cli restore --check - <"$file"
scale=() # so that as many start again
for service in $services; do
	n=$("$@" ps --all --quiet "$service" 2>/dev/null | wc -w)
	[ "$n" -eq 0 ] || scale+=(--scale "$service=$n")
done
say "stopping the services; the bus goes on"
# shellcheck disable=SC2086 # one service a word
"$@" stop $services
code=0
"$@" run --rm -T cli restore "${flags[@]}" - <"$file" || code=$?
if [ "$code" -ne 0 ]; then
	say "nothing was restored, or not all of it (above); the services stay stopped" >&2
	[ "$code" -ne 3 ] || say "to remove what the system holds: make compose-restore FILE=$file REPLACE=yes; else start it again: $* up -d" >&2
	exit "$code"
fi
say "starting the services"
"$@" up -d --no-build "${scale[@]}"
deploy/dev/compose-healthy.sh "$@"
