#!/usr/bin/env bash
# Upgrades the system of docker-compose.yml that runs, while people use it:
#
#   compose-upgrade.sh docker compose
#   compose-upgrade.sh docker-compose
#
# It makes the new images, takes a backup, writes the permissions of the new version, and replaces one service after the other. Each stops
# when what it runs is finished, or after its stop_grace_period; inputs wait in the log meanwhile.
# Core comes last, so that it finds executors that know as much as it does, but before what core has to invite. What does not become
# healthy ends the upgrade; the images that ran before are kept with the tag "previous".
#
#   IMAGES=build      how to get the images: build, pull, or present (nothing is to be done)
#   BACK=yes          go back to the previous images; without a backup
#   BACKUPS=backups   directory of the backup
#   PATIENCE=180      for how many seconds a service may take to become healthy
set -euo pipefail
cd "$(dirname "$0")/../.."
. deploy/dev/settings.sh
compose=("$@")
patience=${PATIENCE:-180}
say() { printf 'upgrade: %s\n' "$*"; }
fail() { say "$*" >&2; exit 1; }

# containers lists those of a service, also stopped ones.
containers() {
	docker ps --all --quiet --filter "label=com.docker.compose.project=$project" \
		--filter "label=com.docker.compose.service=$1" --filter label=com.docker.compose.oneoff=False
}

# each calls a function for every image that runs, with its id and name.
each() {
	local id name
	# shellcheck disable=SC2046 # one id a word
	docker inspect --format '{{.Image}} {{.Config.Image}}' \
		$(docker ps --all --quiet --filter "label=com.docker.compose.project=$project" \
			--filter label=com.docker.compose.oneoff=False) | sort -u |
		while read -r id name; do "$1" "$id" "$name"; done
}
keep() {
	docker tag "$1" "${2%:*}:previous"
	# The command has no container. It writes the permissions of its version.
	case $2 in */core:*) docker tag "${2/%\/core:*//cli}:${2##*:}" "${2/%\/core:*//cli}:previous" 2>/dev/null || true ;; esac
}
revert() {
	docker image inspect "${2%:*}:previous" >/dev/null 2>&1 || fail "${2%:*}:previous is missing: there is nothing to go back to"
	docker tag "${2%:*}:previous" "$2"
	case $2 in */core:*) docker tag "${2/%\/core:*//cli}:previous" "${2/%\/core:*//cli}:${2##*:}" 2>/dev/null || true ;; esac
}

health() { docker inspect --format "$health" "$1"; }

# await waits until all containers of a service are healthy, and does not wait for one that ends again and again.
await() {
	local i id bad
	for ((i = 0; i <= patience; i++)); do
		bad=
		for id in $(containers "$1"); do
			case $(health "$id") in healthy | running | done) ;; *) bad=$id ;; esac
		done
		[ -n "$bad" ] || return 0
		[ "$(docker inspect --format '{{.RestartCount}}' "$bad")" -lt 5 ] || break
		[ "$i" -eq "$patience" ] || sleep 1
	done
	say "$1 is $(health "$bad"); its log ends:" >&2
	docker logs --tail 20 "$bad" >&2 2>&1 || true
	return 1
}

# same says whether a service's containers are of the image and the configuration that it has now.
same() {
	local id format='{{.Image}} {{index .Config.Labels "com.docker.compose.config-hash"}} {{.Config.Image}}' image hash name
	for id in $(containers "$1"); do
		read -r image hash name <<<"$(docker inspect --format "$format" "$id")"
		[ "$image" = "$(docker image inspect --format '{{.Id}}' "$name" 2>/dev/null)" ] || return 1
		grep -qx "$1 $hash" <<<"$hashes" || return 1
	done
}

replace() {
	local before after n
	if same "$1" && await "$1" 2>/dev/null; then
		say "$1: as it was"
		return
	fi
	before=$(containers "$1")
	n=$(wc -w <<<"$before")
	if ! "${compose[@]}" up -d --no-deps --no-build --scale "$1=$n" "$1" >/dev/null 2>"$errors"; then
		cat "$errors" >&2
		return 1
	fi
	await "$1" || return 1
	after=$(containers "$1")
	if [ "$before" = "$after" ]; then say "$1: as it was"; else say "$1: replaced, and healthy"; fi
}

stuck() {
	say "STOPPED: $1 does not run as it should (above). Services before it in this list run the new version," \
		"the others the old one: $order" >&2
	say "nothing is lost: inputs wait in the log" >&2
	if [ "${BACK:-}" != yes ]; then
		say "to go back to the previous images: make compose-back" >&2
		[ -z "$archive" ] || say "if that does not help: make compose-restore FILE=$archive REPLACE=yes" >&2
	fi
	exit 1
}

errors=$(mktemp)
trap 'rm -f "$errors"' EXIT
"${compose[@]}" config --quiet || fail "docker-compose.yml or .env is not valid (above); nothing was changed"
one=$("${compose[@]}" ps --quiet nats | head -n 1)
[ -n "$one" ] || fail "the system does not run; make compose-up starts it, with new images"
project=$(docker inspect --format '{{index .Config.Labels "com.docker.compose.project"}}' "$one")
# Those that have containers; config --services of version 1 also lists what no profile has enabled.
services=$(docker ps --all --filter "label=com.docker.compose.project=$project" \
	--filter label=com.docker.compose.oneoff=False --format '{{.Label "com.docker.compose.service"}}' | sort -u)
archive=

if [ "${BACK:-}" = yes ]; then
	each revert
else
	each keep
	case ${IMAGES:-build} in
	build) deploy/docker/images.sh "${compose[@]}" ;;
	pull) "${compose[@]}" pull ;;
	present) ;;
	*) fail "IMAGES is $IMAGES, want build, pull or present" ;;
	esac
	say "taking a backup"
	archive=$(deploy/dev/compose-backup.sh "${compose[@]}") || fail "the backup failed (above); no service was replaced"
	say "the backup is $archive"
fi
deploy/dev/compose-secrets.sh "${compose[@]}"

hashes=$("${compose[@]}" config --hash='*' 2>/dev/null || true) # without it, all are asked about

# The bus and the view first: whatever is connected connects again. Core last, but for what it invites.
last="uibridge listener toolrunner sandbox provider core"
invited="example-policy provider-gemini-legacy"
first=$(grep -xE 'nats|redis' <<<"$services" | sort | tr '\n' ' ')
others=$(grep -vxE 'nats|redis|uibridge|listener|toolrunner|sandbox|provider|core|example-policy|provider-gemini-legacy' <<<"$services" | tr '\n' ' ' || true)
order="$first$others$last $invited"
for service in $order; do
	grep -qx "$service" <<<"$services" || continue
	replace "$service" || stuck "$service"
	[ "$service" != core ] || deploy/dev/compose-invite.sh "${compose[@]}"
done
# What this version has in addition.
scale=()
for service in $services; do scale+=(--scale "$service=$(containers "$service" | wc -w)"); done
"${compose[@]}" up -d --no-build --no-recreate "${scale[@]}" >/dev/null 2>"$errors" || { cat "$errors" >&2; stuck "a new service"; }
deploy/dev/compose-healthy.sh "${compose[@]}"
say "done: all services are healthy"
