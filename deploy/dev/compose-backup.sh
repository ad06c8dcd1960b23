#!/usr/bin/env bash
# Backs up the system of docker-compose.yml that runs:
#
#   compose-backup.sh docker compose
#   compose-backup.sh docker-compose
#
#   BACKUPS=backups   directory of the archives
#
# The archive is written here, so that it belongs to the caller, and has its name only when it is
# complete. It contains everything that people said: nobody else may read it.
set -euo pipefail
cd "$(dirname "$0")/../.."
umask 077
backups=${BACKUPS:-backups}
mkdir -p "$backups"
archive=$backups/skandha-$(date -u +%Y%m%d-%H%M%S).backup
partial=$(mktemp "$backups/.partial-XXXXXX")
trap 'rm -f "$partial"' EXIT

# Without a terminal, for it would change the bytes.
"$@" run --rm -T cli backup - </dev/null >"$partial"
sync "$partial" 2>/dev/null || true # not every system has such a sync
mv "$partial" "$archive"
echo "$archive"
