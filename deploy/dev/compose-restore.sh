#!/usr/bin/env bash
# Restores a backup into the system of docker-compose.yml: stops the services, restores, starts them.
#
#   FILE=backups/skandha-….backup compose-restore.sh docker compose
#   FILE=backups/skandha-….backup compose-restore.sh docker-compose
#
#   REPLACE=yes   remove what the system holds; without it, it must be empty
#
# The keys of the bus are not in a backup. To go on with those of then, put the copy of keys.json into
# SKANDHA_SECRETS=./secrets first.
set -euo pipefail
cd "$(dirname "$0")/../.."
say() { printf 'restore: %s\n' "$*"; }
fail() { say "$*" >&2; exit 1; }

file=${FILE:-}
[ -n "$file" ] || fail "FILE is not set; name the archive, such as FILE=backups/skandha-20261126-224500.backup"
[ -r "$file" ] || fail "$file cannot be read"
flags=()
[ "${REPLACE:-}" != yes ] || flags+=(--replace)

deploy/dev/compose-secrets.sh "$@"
"$@" up -d --no-build nats
say "reading the archive"
"$@" run --rm -T cli restore --check - <"$file"

# What has containers, and how many, so that as many start again. (config --services of version 1
# also lists what no profile has enabled.)
nats=$("$@" ps --quiet nats)
project=$(docker inspect --format '{{index .Config.Labels "com.docker.compose.project"}}' "$nats")
running=$(docker ps --all --filter "label=com.docker.compose.project=$project" \
	--filter label=com.docker.compose.oneoff=False --format '{{.Label "com.docker.compose.service"}}')
services=$(grep -vxE 'nats|redis' <<<"$running" | sort -u || true)
if [ -n "$services" ] && [ "${REPLACE:-}" != yes ]; then
	say "the system has run, and is not empty; nothing was changed. To remove what it holds: make compose-restore FILE=$file REPLACE=yes" >&2
	exit 3
fi
scale=()
for service in $services; do scale+=(--scale "$service=$(grep -cx "$service" <<<"$running")"); done
say "stopping the services; the bus goes on"
# shellcheck disable=SC2086 # one service a word
[ -z "$services" ] || "$@" stop $services
code=0
"$@" run --rm -T cli restore ${flags[@]+"${flags[@]}"} - <"$file" || code=$?
if [ "$code" -ne 0 ]; then
	say "nothing was restored, or not all of it (above); the services stay stopped" >&2
	[ "$code" -ne 3 ] || say "to remove what the system holds: make compose-restore FILE=$file REPLACE=yes" >&2
	exit "$code"
fi
say "starting the services"
"$@" up -d --no-build ${scale[@]+"${scale[@]}"}
deploy/dev/compose-healthy.sh "$@"
say "who was invited (the restore says above whether their credentials are valid):"
"$@" run --rm -T cli plugins identities </dev/null
