#!/usr/bin/env bash
# Makes the certificates of the bus, or renews its own, and has docker-compose.yml use them:
#
#   tls.sh            make them, if they are missing, and write the switch into .env
#   tls.sh renew      a new certificate of the bus, by the same authority
#
#   SKANDHA_TLS=./tls          their directory
#   TLS_HOSTS="name address"   by which clients outside of the containers reach the bus, too
set -euo pipefail
cd "$(dirname "$0")/../.."
dir=${SKANDHA_TLS:-./tls}
flags=()
for host in ${TLS_HOSTS:-}; do flags+=(--host "$host"); done
[ ${#flags[@]} -eq 0 ] || flags+=(--host localhost --host 127.0.0.1 --host ::1 --host nats)

if [ "${1:-}" = renew ]; then
	bin/skandha tls renew "$dir" ${flags[@]+"${flags[@]}"}
elif [ -e "$dir/ca.pem" ]; then
	echo "the certificates in $dir are used; make tls-renew makes a new one of the bus"
	bin/skandha tls show "$dir" || true
else
	bin/skandha tls init "$dir" ${flags[@]+"${flags[@]}"}
fi

# The server's container runs as root without the right to read what others own: it reads the
# key as a member of its group.
group=$(id -g)
if [ "$(id -u)" -ne 0 ]; then chmod 640 "$dir/server.key"; fi

setting() { # NAME VALUE
	grep -qs "^$1=" .env && return
	(umask 077 && printf '%s=%s\n' "$1" "$2" >>.env)
	echo "wrote $1 of docker-compose.yml into .env"
}
setting SKANDHA_TLS "$dir"
setting SKANDHA_TLS_GROUP "$group"
setting COMPOSE_FILE docker-compose.yml:deploy/docker/tls.yml
if ! grep -q '^COMPOSE_FILE=.*deploy/docker/tls.yml' .env; then
	echo "COMPOSE_FILE in .env does not name deploy/docker/tls.yml; add it there, after a colon" >&2
	exit 1
fi
echo "now: make compose-up, or docker compose up -d; clients outside of it need"
echo "  SKANDHA_NATS=tls://127.0.0.1:4222 SKANDHA_TLS_CA=$dir/ca.pem"
