#!/usr/bin/env bash
# Makes sure that what a make target needs is there.
#
#   setup.sh build    Go: all that `make run` needs
#   setup.sh test     and what the tests start: Redis, a Docker engine, Chromium, …
#
# On Debian, as root, it says what is missing and installs it. Elsewhere, or with
# SKANDHA_INSTALL=no, it only says what is missing and how to get it; tests that need it
# are then skipped, or fail if SKANDHA_REQUIRE=all.
set -euo pipefail

want=${1:-test}
go_min=1.26.8 # as in go.mod

say() { printf 'setup: %s\n' "$*"; }
have() { command -v "$1" >/dev/null 2>&1; }

need_go() {
	if ! have go; then
		say "Go is missing: install Go $go_min or newer (https://go.dev/dl) and run make again" >&2
		exit 1
	fi
	local version
	version=$(go env GOVERSION)
	version=${version#go}
	if [ "$(printf '%s\n%s\n' "$go_min" "$version" | sort -V | head -n 1)" != "$go_min" ]; then
		say "Go is $version, want $go_min or newer (https://go.dev/dl)" >&2
		exit 1
	fi
}

# Packages to install, and why, by what is missing.
packages=()
missing() { # what, then its packages
	say "missing: $1 (Debian: ${*:2})"
	packages+=("${@:2}")
}

look() {
	have redis-server || missing "redis-server, for the tests of the Redis view" redis-server
	have mosquitto_pub && { have mosquitto || [ -x /usr/sbin/mosquitto ]; } ||
		missing "mosquitto, for the tests of the MQTT listener" mosquitto mosquitto-clients
	have ffmpeg || missing "ffmpeg, for the tests of cameras and microphones" ffmpeg
	have prometheus || missing "Prometheus, which collects metrics in tests" prometheus
	have redis-cli || missing "redis-cli, for the health check of the compose system" redis-tools
	have ngircd || [ -x /usr/sbin/ngircd ] || missing "ngircd, for the tests of the IRC gateway" ngircd
	have prosody || missing "prosody, for the tests of the XMPP gateway" prosody
	[ -x /usr/sbin/postfix ] && [ -x /usr/lib/dovecot/imap ] ||
		missing "Postfix and Dovecot, for the tests of e-mail" postfix dovecot-imapd
	have gcc || missing "a C compiler, for the race detector" gcc libc6-dev
	have bwrap || missing "bubblewrap, for sandboxes without a Docker engine" bubblewrap
	[ -x /usr/bin/python3 ] || missing "the system's Python 3, for sandboxes without a Docker engine" python3
	/usr/bin/python3 -m pip --version >/dev/null 2>&1 || missing "pip, for packages in sandboxes" python3-pip
	/usr/bin/python3 -c 'import numpy, pandas, matplotlib' 2>/dev/null ||
		missing "NumPy, pandas and Matplotlib, for data analysis in sandboxes" python3-numpy python3-pandas python3-matplotlib
	have debootstrap || missing "debootstrap, for the image of sandboxes" debootstrap
	have python3 || missing "Python 3, for the tests of plugins in Python" python3
	have node || missing "Node, for the tests of plugins for Node, and of memories in Chroma" nodejs
	perl -MJSON::PP -MIO::Socket::INET -e1 2>/dev/null || missing "Perl, for the test of the program that skandha plugins invite writes" perl
	have chromium || have chromium-browser || have google-chrome || have google-chrome-stable || have headless_shell ||
		missing "Chromium, for the tests of the page" chromium fonts-dejavu-core
	have pocketsphinx_continuous && [ -d /usr/share/pocketsphinx/model/en-us/en-us ] ||
		missing "PocketSphinx with its English model, for the tests of speech" pocketsphinx pocketsphinx-en-us
	have espeak-ng || missing "eSpeak NG, for the tests of speech" espeak-ng
	have npm || missing "npm, for the NATS client of the plugins for Node, and for Chroma" npm
	have ip || missing "ip, for the network of a test's own Docker engine" iproute2
	[ -s /etc/ssl/certs/ca-certificates.crt ] || missing "root certificates, for the container images" ca-certificates
	if ! docker info >/dev/null 2>&1; then # else an engine answers, and the tests use it
		have dockerd || missing "a Docker engine, for the test of docker-compose.yml" docker.io iptables
	fi
	docker compose version >/dev/null 2>&1 || have docker-compose || missing "docker compose" docker-compose
	have busybox || missing "busybox, for the test's image of NATS" busybox-static
}

# Packages may start daemons when they are installed; these are for tests, which
# start their own.
policy=/usr/sbin/policy-rc.d
forbid_daemons() {
	[ -e "$policy" ] && return
	printf '#!/bin/sh\nexit 101\n' >"$policy"
	chmod 755 "$policy"
	trap 'rm -f "$policy"' EXIT
}

install() {
	say "installing these Debian packages as root (SKANDHA_INSTALL=no installs nothing): ${packages[*]}"
	forbid_daemons
	export DEBIAN_FRONTEND=noninteractive
	apt-get update -qq
	apt-get install -y -qq -o Dpkg::Use-Pty=0 --no-install-recommends "${packages[@]}" >/dev/null
	say "installed"
}

# image makes what tests import as the image of sandboxes, once on a machine.
image() {
	if [ "$(id -u)" = 0 ] && have debootstrap; then
		"$(dirname "$0")/../docker/sandbox/build.sh" --light --cache >/dev/null ||
			say "the sandbox's image could not be made; tests of Docker sandboxes are skipped, and say so"
	fi
}

# compose_v2 fetches what tests compare docker-compose with, where docker has no plugin, once on a machine.
compose_v2() {
	docker compose version >/dev/null 2>&1 || "$(dirname "$0")/compose-v2.sh" >/dev/null ||
		say "Docker Compose v2 could not be fetched; its tests are skipped, and say so"
}

need_go
case $want in
build) ;;
test)
	look
	if [ ${#packages[@]} -eq 0 ]; then
		:
	elif [ "${SKANDHA_INSTALL:-}" != no ] && [ "$(id -u)" = 0 ] && [ -r /etc/debian_version ] && have apt-get; then
		install
	else
		say "not installed (that takes root on Debian, without SKANDHA_INSTALL=no). Install: ${packages[*]}"
		say "without them, the tests that need them are skipped, and say so"
	fi
	[ "${SKANDHA_INSTALL:-}" = no ] || { image; compose_v2; }
	;;
*)
	say "want build or test, got $want" >&2
	exit 2
	;;
esac
