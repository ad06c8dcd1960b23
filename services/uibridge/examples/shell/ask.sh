#!/usr/bin/env bash
# A UI of an agent with curl: sends its arguments, prints the agent's answer, and asks for a y before any call that
# needs approval.
#
#   SKANDHA_UI_TOKEN=$(cat .data/ui-token) ./ask.sh 'what is 2+2?'
#
# It asks one thing and exits. A UI that keeps running would reconnect with -H "Last-Event-ID: $id".
set -u

url=${SKANDHA_UI:-http://127.0.0.1:7070}
here=$url/v1/agents/${SKANDHA_AGENT:-main}/sessions/${SKANDHA_SESSION:-shell}

# The token is passed in a file descriptor, so that it is not in the list of processes.
call() { curl --silent --show-error --config <(printf 'header = "Authorization: Bearer %s"' "$SKANDHA_UI_TOKEN") "$@"; }
post() { call --json "$2" "$here/$1?ui=shell"; }

# text NAME: prints the decoded string NAME of $data.
text() { [[ $data =~ \"$1\":\"(([^\"\\]|\\.)*)\" ]] && printf '%b' "${BASH_REMATCH[1]//\\\//\/}"; }
quote() { local s=${1//\\/\\\\}; s=${s//\"/\\\"}; printf '"%s"' "${s//$'\n'/\\n}"; }

sequence=0 id=0.0 name=
exec {events}< <(call --no-buffer "$here/events?ui=shell")
stream=$!
trap 'kill $stream 2>/dev/null' EXIT
while IFS= read -r line <&"$events"; do
	case $line in
	'event: '*) name=${line#event: } ;;
	'id: '*) id=${line#id: } ;;
	'data: '*)
		data=${line#data: }
		case $name in
		onAttached)
			answer=$(post inputs "{\"input\":$(quote "$*")}")
			[[ $answer =~ \"sequence\":([0-9]+) ]] || { echo "$answer" >&2; exit 1; }
			sequence=${BASH_REMATCH[1]}
			;;
		onNewMessage) text content; echo ;;
		onToolCallRequest)
			[[ $data =~ \"args\":(.*),\"confirmationId\" ]]
			read -rp "$(text toolName) ${BASH_REMATCH[1]}: $(text message)"$'\nallow it? [y/N] ' yes
			[[ ${yes:-} == [yY]* ]] && approved=true || approved=false
			post confirmations "{\"confirmationId\":$(quote "$(text confirmationId)"),\"hash\":$(quote "$(text hash)"),\"approved\":$approved}" >/dev/null
			;;
		onReadyForInput) ((${id%.*} > sequence && sequence > 0)) && exit ;;
		onDropped) text message >&2; exit 1 ;;
		esac
		;;
	esac
done
[[ -z ${data:-$line} ]] || echo "$line" >&2
exit 1
