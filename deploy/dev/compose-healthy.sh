#!/usr/bin/env bash
# Waits until every container of docker-compose.yml is healthy; or runs, if it has no health
# check; or has done its work, if it does not start again:
#
#   compose-healthy.sh docker compose
#   compose-healthy.sh docker-compose
#
#   PATIENCE=180   for how many seconds
set -euo pipefail
cd "$(dirname "$0")/../.."
. deploy/dev/settings.sh
patience=${PATIENCE:-180}

# A line for each container: whether it is a single `run`, its name, and how it is.
format='{{index .Config.Labels "com.docker.compose.oneoff"}} {{.Name}} '$health

for ((i = 0; ; i++)); do
	ids=$("$@" ps --all --quiet)
	# shellcheck disable=SC2086 # one id a word
	states=$([ -z "$ids" ] || docker inspect --format "$format" $ids | sed -n 's,^False /,  ,p')
	unhealthy=$(grep -vE ' (healthy|running|done)$' <<<"$states" || true)
	if [ -n "$states" ] && [ -z "$unhealthy" ]; then
		echo "all are healthy:"
		echo "$states"
		exit 0
	fi
	[ "$i" -lt "$patience" ] || break
	sleep 1
done
echo "not healthy after $patience s (docker logs NAME says why):"
echo "${unhealthy:-  no container is there; make compose-up starts them}"
exit 1
