#!/usr/bin/env bash
# Writes the keys of the bus of docker-compose.yml, each once, and what follows from them, anew with each version:
#
#   compose-secrets.sh docker compose
#   compose-secrets.sh docker-compose
#   compose-secrets.sh                  only writes the files
#
#   SKANDHA_SECRETS=./secrets   their directory
#
# With compose it also prepares the bus: what a bus without rights has stored, as earlier versions had it, is moved to
# where one with rights finds it, for which that bus is stopped. A bus that runs with other permissions starts again.
set -euo pipefail
cd "$(dirname "$0")/../.."
. deploy/dev/settings.sh
say() { printf 'secrets: %s\n' "$*"; }
fail() { say "$*" >&2; exit 1; }

dir=$(setting SKANDHA_SECRETS ./secrets)
cli=$(setting SKANDHA_IMAGES skandha)/cli:$(setting SKANDHA_VERSION devel)
before=$(cat "$dir/server.conf" 2>/dev/null || true)
(umask 077 && mkdir -p "$dir")

if docker image inspect "$cli" >/dev/null 2>&1; then
	# The files go in and out by copies, so that they belong to the caller with any engine.
	container=$(docker create --user 0:0 --network none "$cli" secrets /secrets)
	trap 'docker rm -f "$container" >/dev/null' EXIT
	docker cp -q "$dir/." "$container:/secrets" 2>/dev/null || docker cp "$dir/." "$container:/secrets"
	docker start --attach "$container" | sed "s,^wrote /secrets/,wrote $dir/,"
	docker cp -q "$container:/secrets/." "$dir" 2>/dev/null || docker cp "$container:/secrets/." "$dir"
	chmod 700 "$dir"
elif command -v go >/dev/null 2>&1; then
	CGO_ENABLED=0 go run ./services/skandha secrets "$dir"
else
	fail "neither the image $cli nor Go is here; make compose-up makes the images first"
fi
[ $# -gt 0 ] || exit 0

nats=$("$@" ps --quiet nats 2>/dev/null | head -n 1)
if [ -n "$nats" ]; then
	token=$(docker inspect --format '{{range .Config.Env}}{{println .}}{{end}}' "$nats" | sed -n 's/^SKANDHA_TOKEN=//p')
	if [ -z "$token" ]; then
		[ "$before" = "$(cat "$dir/server.conf")" ] && exit 0
		say "the permissions have changed; starting the bus again"
		"$@" restart nats >/dev/null 2>&1
		exit 0
	fi
	say "the bus runs with a token for all; stopping it, to give it rights"
	docker stop "$nats" >/dev/null
fi
"$@" run --rm -T adopt </dev/null || fail "the bus was not given rights (above)"
