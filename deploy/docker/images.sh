#!/usr/bin/env bash
# Builds the images of docker-compose.yml:
#
#   images.sh docker compose
#   images.sh docker-compose
#
# Compose builds them from the Dockerfile beside this, which takes a registry. Where
# none can be reached, or with SKANDHA_REGISTRY=no, the same images are made of what
# this machine has: the services and NATS by `go build`, Redis and the wget of NATS's
# health check from Debian's packages, and the examples of the image with Python that
# SKANDHA_PYTHON_IMAGE names, else of the sandbox's. SKANDHA_IMAGES and SKANDHA_VERSION
# name the images, as they do for compose.
set -euo pipefail
cd "$(dirname "$0")/../.."
. deploy/dev/settings.sh

say() { printf 'images: %s\n' "$*"; }
fail() { say "$*" >&2; exit 1; }

if [ "${SKANDHA_REGISTRY:-}" != no ]; then
	if COMPOSE_PROFILES=cli,gemini-legacy,$(setting COMPOSE_PROFILES '') "$@" build; then
		exit
	fi
	say "compose could not build them (above), as without a registry: making them from this machine's programs instead"
fi

prefix=$(setting SKANDHA_IMAGES skandha)
version=$(setting SKANDHA_VERSION devel)
present() { docker image inspect "$1" >/dev/null 2>&1; }

# Nothing here can make these.
for profile in observability:grafana observability:prometheus observability:collector observability:jaeger chroma:chroma; do
	name=$prefix/${profile#*:}:$version
	! enabled "${profile%:*}" || present "$name" ||
		fail "the profile ${profile%:*} takes a registry, or an image $name on this machine; remove it from COMPOSE_PROFILES"
done
python=$(setting SKANDHA_PYTHON_IMAGE "$(setting SKANDHA_SANDBOX_IMAGE skandha/sandbox:latest)")
if enabled examples example-listener; then
	present "$python" || fail "the examples take an image with Python: $python is not on this machine; make sandbox-image, or set SKANDHA_PYTHON_IMAGE"
fi

certificates=/etc/ssl/certs/ca-certificates.crt
[ -s "$certificates" ] || fail "$certificates is missing; install ca-certificates"
lacking=()
command -v redis-server >/dev/null || lacking+=(redis-server)
command -v redis-cli >/dev/null || lacking+=(redis-tools)
command -v busybox >/dev/null || lacking+=(busybox-static)
[ ${#lacking[@]} -eq 0 ] || fail "${lacking[*]} missing; install with: apt-get install ${lacking[*]}"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
umask 022
make build BIN="$work/bin" VERSION="$version" >&2
CGO_ENABLED=0 go build -buildvcs=false -trimpath -ldflags '-s -w' -o "$work/bin/" github.com/nats-io/nats-server/v2

# install copies a program, and the libraries that it loads, to the root of an image.
install() { # ROOT FROM TO
	local library
	mkdir -p "$1$(dirname "$3")"
	cp -L "$2" "$1$3"
	for library in $(ldd "$2" 2>/dev/null | grep -o '/[^ ]*' || true); do
		mkdir -p "$1$(dirname "$library")"
		cp -L "$library" "$1$library"
	done
}

# image makes an image of a root file system. The directories, which volumes are
# mounted on, belong to the user of that id.
image() { # NAME ROOT UID:GID DIRECTORIES CHANGE...
	local name=$1 root=$2 owner=$3 directories=$4 change changes=()
	for change in "${@:5}"; do changes+=(--change "$change"); done
	tar -C "$root" --numeric-owner --owner=0 --group=0 -cf "$work/tar" .
	for change in $directories; do
		mkdir -p "$work/empty/$change"
		tar -C "$work/empty" --numeric-owner --owner="${owner%:*}" --group="${owner#*:}" -rf "$work/tar" "./$change"
	done
	docker import "${changes[@]}" "$work/tar" "$prefix/$name:$version" >/dev/null
	say "made $prefix/$name:$version"
	rm -rf "$root" "$work/empty"
}

service() { # NAME BINARY
	install "$work/root" "$work/bin/$2" /service
	install "$work/root" "$certificates" /etc/ssl/certs/ca-certificates.crt
	image "$1" "$work/root" 65532:65532 "data workspace state spool" "USER 65532:65532" "WORKDIR /data" "ENV HOME=/data" 'ENTRYPOINT ["/service"]'
}
service core skandha-core
service provider skandha-provider
service provider-gemini-legacy skandha-provider-gemini-legacy
service toolrunner skandha-toolrunner
service sandbox-service skandha-sandbox
service engine skandha-engine
service listener skandha-listener
service uibridge skandha-uibridge
service cli skandha

install "$work/root" "$work/bin/nats-server" /usr/local/bin/nats-server
install "$work/root" "$(command -v busybox)" /usr/bin/wget
image nats "$work/root" 0:0 data "ENV PATH=/usr/local/bin:/usr/bin"

install "$work/root" "$(command -v redis-server)" /usr/bin/redis-server
install "$work/root" "$(command -v redis-cli)" /usr/bin/redis-cli
image redis "$work/root" 999:1000 data "ENV PATH=/usr/bin"

# The examples, as the Dockerfile's target has them.
examples() {
	local container
	mkdir "$work/examples"
	cp services/listener/examples/python/*.py "$work/examples" # readable by all, whatever the tree's modes are
	chmod 644 "$work/examples"/*
	container=$(docker create "$python")
	docker cp "$work/examples" "$container:/examples" >/dev/null
	docker commit --change "USER 65532:65532" --change "WORKDIR /examples" --change "ENTRYPOINT []" \
		--change "ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1" "$container" "$prefix/examples:$version" >/dev/null
	docker rm "$container" >/dev/null
	say "made $prefix/examples:$version"
}
if enabled examples example-listener; then examples; fi
