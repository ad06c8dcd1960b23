#!/bin/sh
# Starts one Redis of the three, or its Sentinel: redis.sh server|sentinel. All servers follow the master that
# the sentinels name. Where none answers, as at the first start, the first server is the master.
#
# SELF is this pod's name, PEERS those of all, the first one first; STATE is a directory that the process may
# write; MAXMEMORY limits the view. BIND, DATA, DOWN_AFTER and PATIENCE, the seconds to look for a sentinel,
# are for tests.
set -eu

master() { # the name of the master, by the first sentinel that answers
	for peer in $PEERS; do
		found=$(timeout 2 redis-cli -h "$peer" -p 26379 --raw sentinel get-master-addr-by-name skandha 2>/dev/null |
			head -n 1) || continue
		for known in $PEERS; do # an error message is no name
			if [ "$found" = "$known" ]; then echo "$found"; return; fi
		done
	done
	return 1
}

seek() {
	left=${PATIENCE:-10}
	until master; do
		left=$((left - 1))
		if [ "$left" -le 0 ]; then echo "${PEERS%% *}"; return; fi
		sleep 1
	done
}

umask 077
case $1 in
server)
	leader=$(seek)
	{
		echo "bind ${BIND:-* -::*}"
		echo "port 6379"
		echo "requirepass $REDISCLI_AUTH"
		echo "masterauth $REDISCLI_AUTH"
		echo "replica-announce-ip $SELF"
		echo "dir ${DATA:-/data}"
		echo "appendonly yes"
		echo "repl-diskless-sync-delay 0" # a replica does not wait for another one
		echo "maxmemory $MAXMEMORY"
		echo "maxmemory-policy noeviction" # a view that loses keys is folded again and again
		[ "$leader" = "$SELF" ] || echo "replicaof $leader 6379"
	} >"$STATE/redis.conf"
	exec redis-server "$STATE/redis.conf"
	;;
sentinel)
	# A container that starts again knows what it learned; a new pod asks.
	if ! [ -s "$STATE/sentinel.conf" ]; then
		leader=$(seek)
		{
			echo "bind ${BIND:-* -::*}"
			echo "port 26379"
			echo "dir $STATE"
			echo "requirepass $REDISCLI_AUTH"
			echo "sentinel sentinel-pass $REDISCLI_AUTH"
			echo "sentinel resolve-hostnames yes"
			echo "sentinel announce-hostnames yes"
			echo "sentinel announce-ip $SELF"
			echo "sentinel monitor skandha $leader 6379 2"
			echo "sentinel auth-pass skandha $REDISCLI_AUTH"
			echo "sentinel down-after-milliseconds skandha ${DOWN_AFTER:-5000}"
			echo "sentinel failover-timeout skandha $((6 * ${DOWN_AFTER:-5000}))"
			echo "sentinel parallel-syncs skandha 1"
		} >"$STATE/sentinel.new"
		mv "$STATE/sentinel.new" "$STATE/sentinel.conf"
	fi
	exec redis-server "$STATE/sentinel.conf" --sentinel
	;;
*)
	echo "redis.sh: server or sentinel, not $1" >&2
	exit 2
	;;
esac
