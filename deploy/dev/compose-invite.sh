#!/usr/bin/env bash
# Invites the plugins and listeners of docker-compose.yml's profiles that are enabled and have no credentials yet, and
# starts them. Their credentials are kept in .env. Core invites, so it is started if it does not run.
#
#   compose-invite.sh docker compose
#   compose-invite.sh docker-compose
#
#   PATIENCE=180   for how many seconds core may take to answer
set -euo pipefail
cd "$(dirname "$0")/../.."
. deploy/dev/settings.sh
patience=${PATIENCE:-180}

# invite NAME PROFILES SETTING SERVICE FLAGS…
invite() {
	local name=$1 setting=$3 service=$4 i token=
	# shellcheck disable=SC2086 # one profile a word
	enabled $2 || return 0
	[ -z "$(setting "$setting" '')" ] || return 0
	"${compose[@]}" ps --services --filter status=running 2>/dev/null | grep -qx core || "${compose[@]}" up -d --no-build core
	for ((i = 0; i < patience; i++)); do
		# The last line: docker-compose may say more.
		if token=$("${compose[@]}" run --rm -T cli plugins invite "$name" --replace "${@:5}" </dev/null 2>"$errors" |
			sed -n "s,^export SKANDHA_NATS='[a-z]*://\([^@]*\)@.*,\1,p") && [ -n "$token" ]; then break; fi
		sleep 1
	done
	[ -n "$token" ] || { cat "$errors" >&2 && echo "$name could not be invited (above)" >&2 && exit 1; }
	(umask 077 && printf '%s=%s\n' "$setting" "$token" >>.env)
	echo "invited $name; its credentials are $setting in .env"
	[ -z "$service" ] || "${compose[@]}" up -d --no-deps --no-build "$service"
}

compose=("$@")
errors=$(mktemp)
trap 'rm -f "$errors"' EXIT
invite no-secrets examples SKANDHA_POLICY_TOKEN example-policy --hooks before_act:judge
invite python 'examples example-listener' SKANDHA_EXAMPLE_TOKEN '' --listener python --session python
invite gemini-legacy gemini-legacy SKANDHA_GEMINI_LEGACY_TOKEN provider-gemini-legacy --providers gemini-legacy
