#!/usr/bin/env bash
# Runs Skandha as it is deployed, without containers: NATS, Redis (if installed),
# core, provider, RUNNERS tool runners, the sandbox service, the UI bridge and, with a
# configuration, the listeners, each a process of its own, logging to
# .data/services/logs. Ctrl-C ends them all; so does the end of any one of them.
#
#   RUNNERS=1    how many tool runners
#   SKANDHA_CONFIG=FILE   agents, policy, listeners and ui
#   SKANDHA_UI_LISTEN=127.0.0.1:7070   where the page is
#   PORT=4222    where NATS listens, on loopback
#
# The bus is nats-server if it is installed, else the one in bin/skandha.
set -euo pipefail
cd "$(dirname "$0")/../.."

runners=${RUNNERS:-1}
port=${PORT:-4222}
data=$PWD/.data/services
logs=$data/logs
umask 077
mkdir -p "$logs" "$data/nats" "$data/redis" "$data/workspace"

say() { printf '%s\n' "$*"; }
have() { command -v "$1" >/dev/null 2>&1; }

# Secrets, made once.
secret() {
	[ -s "$data/$1" ] || printf 's%s' "$(od -An -N 24 -tx1 /dev/urandom | tr -d ' \n')" >"$data/$1"
	cat "$data/$1"
}
SKANDHA_TOKEN=$(secret token)
SKANDHA_NATS=nats://127.0.0.1:$port
export SKANDHA_TOKEN SKANDHA_NATS

names=()
pids=()

# start runs a command in the background, out of reach of the terminal's Ctrl-C,
# so that this script ends it in order; on Linux it ends with this script, too.
start() {
	local name=$1
	shift
	local detach=()
	have setsid && detach=(setsid)
	have setpriv && setpriv --pdeathsig TERM true 2>/dev/null && detach+=(setpriv --pdeathsig TERM)
	${detach[@]+"${detach[@]}"} "$@" >>"$logs/$name.log" 2>&1 &
	names+=("$name")
	pids+=($!)
	say "  $name: process $!, log .data/services/logs/$name.log"
}

# stop ends what was started, the last first: the bus goes when nobody needs it.
stop() {
	set +e # a terminal that is gone takes no output
	trap '' HUP INT TERM
	trap - EXIT
	local i waited
	[ ${#pids[@]} -gt 0 ] && say "stopping"
	for ((i = ${#pids[@]} - 1; i >= 0; i--)); do
		kill -TERM "${pids[i]}" 2>/dev/null || continue
		for ((waited = 0; waited < 400; waited++)); do
			kill -0 "${pids[i]}" 2>/dev/null || break
			sleep 0.1
		done
		if kill -KILL "${pids[i]}" 2>/dev/null; then
			say "  ${names[i]} did not end within 40 s and was killed"
		fi
		wait "${pids[i]}" 2>/dev/null || true
	done
}
trap stop EXIT
trap 'exit 0' INT # the way to end it
trap 'exit 143' TERM
trap 'exit 129' HUP

# gone says which processes have ended, and how their logs end; false if none has.
gone() {
	local i found=1
	for ((i = 0; i < ${#pids[@]}; i++)); do
		if ! kill -0 "${pids[i]}" 2>/dev/null; then
			say "${names[i]} has ended; its log ends:"
			tail -n 20 "$logs/${names[i]}.log"
			found=0
		fi
	done
	return "$found"
}

# listens waits until something answers on a loopback port.
listens() {
	local i
	for ((i = 0; i < 200; i++)); do
		if (exec 3<>"/dev/tcp/127.0.0.1/$2") 2>/dev/null; then return; fi
		kill -0 "$!" 2>/dev/null || break
		sleep 0.1
	done
	say "$1 does not listen on port $2"
	gone || tail -n 20 "$logs/$1.log"
	exit 1
}

taken() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

if taken "$port"; then
	say "port $port is taken; choose another: make run-services PORT=4333"
	exit 1
fi

# The bridge says so too, but only after the rest has started.
ui=${SKANDHA_UI_LISTEN:-127.0.0.1:7070}
if { [ -n "${SKANDHA_UI_LISTEN:-}" ] || ! grep -qs '^ui:' "${SKANDHA_CONFIG:-}"; } && taken "${ui##*:}"; then
	say "port ${ui##*:}, for the page, is taken; choose another: make run-services SKANDHA_UI_LISTEN=127.0.0.1:7071"
	exit 1
fi

say "starting"
if have nats-server; then
	# The configuration reads the directory as a piece of itself, so it is quoted.
	SKANDHA_NATS_MONITOR=127.0.0.1:-1 SKANDHA_NATS_DATA="\"$data/nats\"" start nats \
		nats-server -c deploy/nats/nats.conf -a 127.0.0.1 -p "$port"
else
	start nats bin/skandha server --listen "127.0.0.1:$port" --data "$data/nats"
fi
listens nats "$port"

if have redis-server; then
	redis_port=${REDIS_PORT:-$((port + 1))}
	if taken "$redis_port"; then
		say "port $redis_port is taken; choose another: make run-services REDIS_PORT=6380"
		exit 1
	fi
	password=$(secret redis-password)
	printf 'bind 127.0.0.1\nport %s\ndir "%s"\nrequirepass %s\nappendonly yes\n' "$redis_port" "$data/redis" "$password" >"$data/redis.conf"
	start redis redis-server "$data/redis.conf"
	listens redis "$redis_port"
	store=redis://:$password@127.0.0.1:$redis_port/0
else
	say "  redis-server is not installed: core keeps its view in .data/services/view.db"
	store=$data/view.db
fi

SKANDHA_STORE=$store start core bin/skandha-core
start provider bin/skandha-provider
for ((n = 1; n <= runners; n++)); do
	SKANDHA_WORKSPACE=$data/workspace start "toolrunner-$n" bin/skandha-toolrunner
done
SKANDHA_SANDBOX_DIR=$data/sandbox start sandbox bin/skandha-sandbox
if [ -n "${SKANDHA_CONFIG:-}" ] && grep -q '^listeners:' "$SKANDHA_CONFIG"; then
	start listener bin/skandha-listener
fi
SKANDHA_UI_DATA=$data start uibridge bin/skandha-uibridge

say "talk to it from another terminal:"
say "  SKANDHA_NATS=$SKANDHA_NATS SKANDHA_TOKEN=\$(cat .data/services/token) bin/skandha chat"
say "its page: the same, with bin/skandha ui --open"
say "Ctrl-C stops it."
# A terminal that is closed tells its first process only, which may be make.
attached() { [ -t 0 ]; }
attached || attached() { true; }
until gone || ! attached; do sleep 1; done
exit 1
