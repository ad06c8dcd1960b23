#!/usr/bin/env bash
# Says how to use the system of docker-compose.yml that runs:
#
#   compose-use.sh docker compose
#   compose-use.sh docker-compose
#
# A link that logs in is for the terminal of a person, not for a log.
set -euo pipefail
cd "$(dirname "$0")/../.."
. deploy/dev/settings.sh

echo "talk to it:    $* run --rm cli chat"
echo "its page:      $* run --rm cli ui  prints a link that opens it once"
if [ -t 1 ] && link=$("$@" run --rm -T cli ui </dev/null 2>/dev/null); then
	echo "               $link"
fi
echo "               or log in there with SKANDHA_UI_TOKEN of .env"
scheme=nats ca=
if grep -qs '^COMPOSE_FILE=.*deploy/docker/tls.yml' .env; then
	scheme=tls ca=" SKANDHA_TLS_CA=$(setting SKANDHA_TLS ./tls)/ca.pem"
fi
secrets=$(setting SKANDHA_SECRETS ./secrets)
echo "let others in: $* run --rm cli plugins invite NAME  prints the credentials of a plugin or listener"
echo "from here:     export SKANDHA_NATS=$scheme://127.0.0.1:$(setting SKANDHA_NATS_PORT 4222)$ca SKANDHA_CREDS=$secrets/operator.creds"
echo "               for bin/skandha on this machine, as the people who run the system"
