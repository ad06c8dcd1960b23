#!/usr/bin/env bash
# Backs up the system of docker-compose.yml that runs:
#
#   compose-backup.sh docker compose
#   compose-backup.sh docker-compose
#
#   BACKUPS=backups   directory of the archives
#
# The archive is written here, so that it belongs to the caller, and has its name only when it is
# complete. It contains everything that people said: nobody else may read it. The keys of the bus, in
# SKANDHA_SECRETS=./secrets, are not in it.
set -euo pipefail
cd "$(dirname "$0")/../.."
umask 077
backups=${BACKUPS:-backups}
mkdir -p "$backups"
archive=$backups/skandha-$(date -u +%Y%m%d-%H%M%S).backup
partial=$(mktemp "$backups/.partial-XXXXXX")
trap 'rm -f "$partial"' EXIT

# A bus of an earlier version, before it is upgraded, has a token for all.
login=()
nats=$("$@" ps --quiet nats | head -n 1)
if [ -n "$nats" ]; then
	token=$(docker inspect --format '{{range .Config.Env}}{{println .}}{{end}}' "$nats" | sed -n 's/^SKANDHA_TOKEN=//p')
	[ -z "$token" ] || login=(-e "SKANDHA_NATS=nats://$token@nats:4222")
fi

# Without a terminal, for it would change the bytes.
"$@" run --rm -T ${login[@]+"${login[@]}"} cli backup - </dev/null >"$partial"
sync "$partial" 2>/dev/null || true # not every system has such a sync
mv "$partial" "$archive"
echo "$archive"
