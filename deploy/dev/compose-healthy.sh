#!/usr/bin/env bash
# Waits until every container of docker-compose.yml is healthy:
#
#   compose-healthy.sh docker compose
#   compose-healthy.sh docker-compose
set -euo pipefail
cd "$(dirname "$0")/../.."

for ((i = 0; i < 180; i++)); do
	ids=$("$@" ps -q)
	# shellcheck disable=SC2086 # one id a word
	states=$(docker inspect --format '  {{.Name}} {{.State.Health.Status}}' $ids)
	unhealthy=$(grep -v ' healthy$' <<<"$states" || true)
	if [ -z "$unhealthy" ]; then
		echo "all are healthy:"
		echo "$states"
		exit 0
	fi
	sleep 1
done
echo "not healthy after three minutes:"
echo "$unhealthy"
exit 1
