#!/usr/bin/env bash
# An observer: prints each event of all sessions, or of one, as it happens: what it is, where, and its data.
# It sees live copies, which may be lost; to miss nothing, read the stream SESSIONS instead.
#
#   eval "$(bin/skandha env --data .data observer --see)" && ./observer.sh [AGENT [SESSION]]
#
# With the nats command:
#   nats --server "$SKANDHA_NATS" sub 'agent.*.*.*.*'
set -u
. "$(dirname "${BASH_SOURCE[0]}")/bus.sh"

trap 'exit 0' INT TERM
while :; do # when the bus goes away, until it is back
	if dial "agent.${1:-*}.${2:-*}.*.*"; then
		echo "following agent.${1:-*}.${2:-*}" >&2
		# shellcheck disable=SC2119
		while receive; do
			IFS=. read -r _ agent session event <<<"$subject"
			[[ $body =~ \"data\":(.*)\}$ ]]
			printf '%s %s/%s %s\n' "$event" "$agent" "$session" "${BASH_REMATCH[1]-}"
		done
	fi
	sleep 1
done
