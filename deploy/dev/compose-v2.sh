#!/usr/bin/env bash
# Prints the path of Docker Compose v2, for tests on a Debian that has only docker-compose 1.29: that of a later Debian, as
# its package has it, or built from its module. It is kept in ${XDG_CACHE_HOME:-~/.cache}/skandha, and fetched once; nothing is installed.
set -euo pipefail
cd "$(dirname "$0")/../.."
release=trixie
module=github.com/docker/compose/v2@v2.40.3
fail() { printf 'Docker Compose v2: %s\n' "$*" >&2; exit 1; }

dir=${XDG_CACHE_HOME:-$HOME/.cache}/skandha/compose-v2-$(uname -m)
if [ ! -x "$dir/docker-compose" ]; then
	[ "${SKANDHA_INSTALL:-}" != no ] || fail "it is not here, and SKANDHA_INSTALL=no forbids to fetch it"
	command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || fail "fetching it takes Debian's apt-get; install the plugin of docker"
	# As the sandbox's image.
	mirror=${DEBIAN_MIRROR:-$(sed -n 's/^mirror=.*:-\(.*\)}$/\1/p' deploy/docker/sandbox/build.sh)}
	mkdir -p "${dir%/*}"
	work=$(mktemp -d "$dir.XXXXXX")
	trap 'rm -rf "$work"' EXIT
	mkdir -p "$work"/lists/partial "$work"/cache/archives/partial
	echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror/debian $release main" >"$work/sources.list"
	apt=(apt-get -qq -o "Dir::Etc::SourceList=$work/sources.list" -o Dir::Etc::SourceParts=- -o "Dir::State::Lists=$work/lists"
		-o "Dir::Cache=$work/cache" -o APT::Sandbox::User=root -o Acquire::Languages=none)
	if (cd "$work" && "${apt[@]}" update && "${apt[@]}" download "docker-compose/$release") >"$work/log" 2>&1; then
		dpkg-deb --extract "$work"/docker-compose_*.deb "$work/root"
		built=$(find "$work/root" -type f -name docker-compose -perm -u+x -size +1000k | head -n 1)
	else # some minutes, once
		source=$(go mod download -json "$module" 2>>"$work/log" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
		built=$work/docker-compose
		{ [ -n "$source" ] && cp -r "$source" "$work/source" && chmod -R u+w "$work/source" &&
			(cd "$work/source" && GOFLAGS='' GOWORK=off CGO_ENABLED=0 go build -o "$built" ./cmd); } >>"$work/log" 2>&1 || {
			tail -n 20 "$work/log" >&2
			fail "neither the package of Debian $release nor $module can be had (above)"
		}
	fi
	mkdir -p "$dir"
	mv "$built" "$dir/docker-compose"
fi
echo "$dir/docker-compose"
