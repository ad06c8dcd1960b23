# shellcheck shell=bash disable=SC2034
# The bus for bash, without other programs: NATS's text protocol on /dev/tcp. Source this file.
#
# SKANDHA_NATS says where the bus is, and who you are:  eval "$(bin/skandha env --data .data NAME)"
# That also sets SKANDHA_DATA, whose run.json says where the bus is now, in case it has moved.
LC_ALL=C # lengths are bytes

# dial SUBSCRIPTION…: connects on descriptor 3; each subscription is "SUBJECT" or "SUBJECT QUEUE-GROUP".
dial() {
	[[ ${SKANDHA_NATS:?is not set; type: eval \"\$(bin/skandha env --data .data NAME)\"} =~ ^nats://(([^@]*)@)?([^:/]+)(:([0-9]+))?/?$ ]] || {
		echo "SKANDHA_NATS is not of the form nats://TOKEN@HOST:PORT" >&2
		return 1
	}
	local host=${BASH_REMATCH[3]} port=${BASH_REMATCH[5]:-4222} token run
	printf -v token %b "${BASH_REMATCH[2]//%/\\x}" # %20 is a space
	token=$(quote "$token")
	if run=$(cat "${SKANDHA_DATA-}/run.json" 2>/dev/null) && [[ $run =~ \"url\":\ *\"nats://([^:\"]+):([0-9]+)\" ]]; then
		host=${BASH_REMATCH[1]} port=${BASH_REMATCH[2]}
	fi
	exec 3<>"/dev/tcp/$host/$port" || return
	IFS= read -r -t 5 run <&3 || return # INFO, unless another program has the port now
	printf 'CONNECT {"verbose":false,"auth_token":%s,"jwt":%s}\r\n' "$token" "$token" >&3
	local n=0 subscription
	for subscription in "$@"; do
		printf 'SUB %s %d\r\n' "$subscription" $((++n)) >&3
	done
}

# publish SUBJECT BODY [REPLY-SUBJECT]
publish() { printf 'PUB %s %s %d\r\n%s\r\n' "$1" "${3-}" ${#2} "$2" >&3; }

# receive [SECONDS]: waits for a message and sets subject, reply and body. It fails with 2 when none came in time,
# and with 1 when the connection has ended.
partial=''
receive() {
	local line code verb number b c
	while :; do
		IFS= read -r ${1:+-t "$1"} line <&3
		code=$? line=$partial$line partial=''
		((code <= 128)) || { partial=$line; return 2; }
		((code == 0)) || return 1
		read -r verb subject number b c <<<"${line%$'\r'}" # MSG SUBJECT NUMBER [REPLY-SUBJECT] BYTES
		case $verb in
		PING) printf 'PONG\r\n' >&3 ;;
		-ERR) echo "$line" >&2; return 1 ;;
		MSG)
			reply=${c:+$b}
			IFS= read -r -N "${c:-$b}" body <&3
			return
			;;
		esac
	done
}

# quote TEXT: as a JSON string.
quote() {
	local s=${1//\\/\\\\}
	s=${s//\"/\\\"}
	s=${s//$'\n'/\\n}
	s=${s//$'\t'/\\t}
	printf '"%s"' "${s//[[:cntrl:]]/ }"
}
