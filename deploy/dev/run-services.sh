#!/usr/bin/env bash
# Runs Skandha as it is deployed, without containers: NATS, Redis (if installed),
# core, provider, RUNNERS tool runners, the sandbox service, the UI bridge and, with a
# configuration, the listeners, each as a separate process, logging to
# .data/services/logs. Ctrl-C ends them all. What ends before is started again, unless it
# ends five times in a row soon after its start; if that is the bus or core, all end, as
# they do if one of the two gives up at its start.
#
#   RUNNERS=1    how many tool runners
#   SKANDHA_CONFIG=FILE   agents, policy, listeners and ui
#   SKANDHA_UI_LISTEN=127.0.0.1:7070   where the page is
#   PORT=4222    where NATS listens, on loopback
#   BIN=bin, DATA=.data/services   where the commands are, and what is kept
#
# The bus is nats-server if it is installed, else the one in skandha. It enforces who may do what: each process has
# the key of its service, from DATA/secrets.
set -euo pipefail
cd "$(dirname "$0")/../.."

runners=${RUNNERS:-1}
port=${PORT:-4222}
bin=${BIN:-bin}
data=${DATA:-$PWD/.data/services}
shown=${data#"$PWD"/}
logs=$data/logs
umask 077
mkdir -p "$logs" "$data/nats" "$data/redis" "$data/workspace" "$data/state"

say() { printf '%s\n' "$*"; }
have() { command -v "$1" >/dev/null 2>&1; }

# The commands find the system by run.json while this script holds the lock; without flock
# they take the address from the environment.
exec 9<>"$data/lock"
if have flock && ! flock -n 9; then
	say "a system already runs on $shown; talk to it: $bin/skandha chat --data $shown"
	say "a second one beside it: make run-services DATA=.data/second PORT=4333 REDIS_PORT=4334 SKANDHA_UI_LISTEN=127.0.0.1:7071"
	exit 1
fi

# Secrets, made once.
secret() {
	[ -s "$data/$1" ] || printf 's%s' "$(od -An -N 24 -tx1 /dev/urandom | tr -d ' \n')" >"$data/$1"
	cat "$data/$1"
}
rm -f "$data/run.json" "$data/token" # of a run that was killed, and of one without rights
printf '%s\n' "$$" >"$data/lock"
secrets=$data/secrets
"$bin/skandha" secrets "$secrets" --store "$data/nats/accounts" >"$logs/secrets.log"
"$bin/skandha" secrets "$secrets" --adopt "$data/nats"
cp deploy/nats/nats.conf "$secrets/" # it includes what was written there
unset SKANDHA_TOKEN SKANDHA_CREDS
export SKANDHA_NATS=nats://127.0.0.1:$port

announced= # run.json is ours

# What was started; a process that is not to be started again has no id.
names=()
pids=()
since=() # when it was started last
quick=() # how often in a row it ended within ten seconds of that

# command_of becomes the process of a name.
command_of() {
	case $1 in
	nats)
		if have nats-server; then
			# The configuration reads the directory as a piece of itself, so it is quoted.
			export SKANDHA_NATS_MONITOR=127.0.0.1:-1 SKANDHA_NATS_DATA="\"$data/nats\""
			detach nats-server -c "$secrets/nats.conf" -a 127.0.0.1 -p "$port"
		fi
		detach "$bin/skandha" server --listen "127.0.0.1:$port" --data "$data/nats" --keys "$secrets/keys.json"
		;;
	redis) detach redis-server "$data/redis.conf" ;;
	core) export SKANDHA_STORE=$store SKANDHA_BUS_KEYS=$secrets/keys.json ;;
	toolrunner-*) export SKANDHA_WORKSPACE=$data/workspace SKANDHA_STATE_DIR=$data/state ;;
	listener) export SKANDHA_STATE_DIR=$data/state ;;
	sandbox) export SKANDHA_SANDBOX_DIR=$data/sandbox ;;
	uibridge) export SKANDHA_UI_DATA=$data ;;
	esac
	export SKANDHA_KEY=$secrets/${1%%-*}.key
	detach "$bin/skandha-${1%%-*}"
}

# detach becomes a process out of reach of the terminal's Ctrl-C, so that this script
# ends it in order; on Linux it ends with this script, too.
detach() {
	local how=()
	have setsid && how=(setsid)
	have setpriv && setpriv --pdeathsig TERM true 2>/dev/null && how+=(setpriv --pdeathsig TERM)
	exec ${how[@]+"${how[@]}"} "$@" 9>&-
}

# launch starts the process with this index of names, in the background.
launch() {
	local name=${names[$1]}
	command_of "$name" >>"$logs/$name.log" 2>&1 &
	pids[$1]=$!
	since[$1]=$SECONDS
	say "  $name: process $!, log $shown/logs/$name.log"
}

start() {
	names+=("$1")
	quick+=(0)
	launch $((${#names[@]} - 1))
}

# stop ends what was started, the last first: the bus goes when nobody needs it.
stop() {
	set +e # a terminal that is gone takes no output
	trap '' HUP INT TERM
	trap - EXIT
	[ -n "$announced" ] && rm -f "$data/run.json"
	local i waited
	[ ${#pids[@]} -gt 0 ] && say "stopping"
	for ((i = ${#pids[@]} - 1; i >= 0; i--)); do
		[ -n "${pids[i]}" ] && kill -TERM "${pids[i]}" 2>/dev/null || continue
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

# ended says how a process ended, and how its log does. It sets code.
ended() {
	code=0
	wait "${pids[$1]}" 2>/dev/null || code=$?
	if [ "$code" -gt 128 ]; then
		say "${names[$1]} was killed by signal $((code - 128)); its log ends:"
	else
		say "${names[$1]} has ended with exit code $code; its log ends:"
	fi
	tail -n "$2" "$logs/${names[$1]}.log"
}

vital() { case ${names[$1]} in nats | core) true ;; *) false ;; esac }

# tend starts again what has ended; it is false if the system cannot do without it.
tend() {
	local i
	for ((i = 0; i < ${#pids[@]}; i++)); do
		if [ -z "${pids[i]}" ] || kill -0 "${pids[i]}" 2>/dev/null; then continue; fi
		ended "$i" 10
		if [ $((SECONDS - since[i])) -lt 10 ]; then quick[i]=$((quick[i] + 1)); else quick[i]=0; fi
		if [ "${quick[i]}" -ge 5 ] || { [ "${quick[i]}" -ge 1 ] && [ "$code" -le 128 ] && vital "$i"; }; then
			pids[i]=
			vital "$i" && return 1
			say "${names[i]} ended five times in a row and is not started again; the rest goes on"
		else
			launch "$i"
		fi
	done
}

# listens waits until something answers on a loopback port.
listens() {
	local i
	for ((i = 0; i < 200; i++)); do
		if (exec 3<>"/dev/tcp/127.0.0.1/$2") 2>/dev/null; then return; fi
		kill -0 "$!" 2>/dev/null || break
		sleep 0.1
	done
	say "$1 does not listen on port $2; its log ends:"
	tail -n 20 "$logs/$1.log"
	exit 1
}

taken() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

if taken "$port"; then
	say "port $port is taken by something else; choose another: make run-services PORT=4333"
	exit 1
fi

# The bridge says so too, but only after the rest has started.
ui=${SKANDHA_UI_LISTEN:-127.0.0.1:7070}
if { [ -n "${SKANDHA_UI_LISTEN:-}" ] || ! grep -qs '^ui:' "${SKANDHA_CONFIG:-}"; } && taken "${ui##*:}"; then
	say "port ${ui##*:}, for the page, is taken; choose another: make run-services SKANDHA_UI_LISTEN=127.0.0.1:7071"
	exit 1
fi

say "starting"
start nats
listens nats "$port"

if have redis-server; then
	redis_port=${REDIS_PORT:-$((port + 1))}
	if taken "$redis_port"; then
		say "port $redis_port is taken; choose another: make run-services REDIS_PORT=6380"
		exit 1
	fi
	password=$(secret redis-password)
	printf 'bind 127.0.0.1\nport %s\ndir "%s"\nrequirepass %s\nappendonly yes\n' "$redis_port" "$data/redis" "$password" >"$data/redis.conf"
	start redis
	listens redis "$redis_port"
	store=redis://:$password@127.0.0.1:$redis_port/0
else
	say "  redis-server is not installed: core keeps its view in $shown/view.db"
	store=$data/view.db
fi

start core
start provider
for ((n = 1; n <= runners; n++)); do start "toolrunner-$n"; done
start sandbox
if [ -n "${SKANDHA_CONFIG:-}" ] && grep -q '^listeners:' "$SKANDHA_CONFIG"; then start listener; fi
start uibridge

if have flock; then
	# The JWT of the credentials, in their second line, is a token.
	printf '{"pid": %s, "url": "%s", "token": "%s"}\n' "$$" "$SKANDHA_NATS" "$(sed -n 2p "$secrets/operator.creds")" >"$data/run.json.new"
	mv "$data/run.json.new" "$data/run.json"
	announced=yes
	say "talk to it from another terminal:  $bin/skandha chat --data '$shown'"
	say "its page:                          $bin/skandha ui --open --data '$shown'"
else
	say "talk to it from another terminal:"
	say "  SKANDHA_NATS=$SKANDHA_NATS SKANDHA_CREDS='$shown/secrets/operator.creds' $bin/skandha chat"
	say "its page: the same, with $bin/skandha ui --open"
fi
say "Ctrl-C stops it."
# A terminal that is closed tells its first process only, which may be make.
attached() { [ -t 0 ]; }
attached || attached() { true; }
while attached && tend; do sleep 1; done 2>/dev/null # where bash, too, reports each process that was killed
exit 1
