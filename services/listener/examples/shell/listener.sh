#!/usr/bin/env bash
# A listener: sends its arguments, or else each line of standard input, to an agent, and prints the sequence under
# which the bus has stored it. From then on it is safe, and ends in exactly one terminal event: see observer.sh.
#
#   eval "$(bin/skandha env --data .data shell)" && ./listener.sh 'what is 2+2?'
#
# With the nats command, one line is a listener:
#   nats --server "$SKANDHA_NATS" req agent.main.shell.sense.input.shell '{"text": "what is 2+2?"}'
# With bus.sh, in this folder:
#   . bus.sh; dial _INBOX.$$; publish agent.main.shell.sense.input.shell '{"text": "hello"}' _INBOX.$$; receive; echo "$body"
set -u
. "$(dirname "${BASH_SOURCE[0]}")/bus.sh"

session=${SKANDHA_SESSION:-agent.main.shell} # agent.<agent>.<session>
inbox=_INBOX.shell-$$-$RANDOM$RANDOM

# emit TEXT: until it is acknowledged it is sent again, under the same id, so that it counts once.
emit() {
	local id="shell-$$-$RANDOM$RANDOM$RANDOM" body
	while :; do
		if dial "$inbox"; then
			publish "$session.sense.input.shell" "{\"text\":$(quote "$1"),\"id\":\"$id\",\"source\":\"shell\"}" "$inbox"
			if receive 5 && [[ $body =~ \"seq\":\ *([0-9]+) ]]; then
				echo "${BASH_REMATCH[1]}"
				return
			fi
			echo "not acknowledged${body:+: $body}; sending it again" >&2
		fi
		sleep 1
	done
}

if (($#)); then
	emit "$*"
else
	while IFS= read -r line; do emit "$line"; done
fi
