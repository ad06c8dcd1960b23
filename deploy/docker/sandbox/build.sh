#!/usr/bin/env bash
# Makes the sandbox's image out of Debian's packages, where no registry can be
# reached. With a registry, the Dockerfile beside this makes the same.
#
#   build.sh [--light] [--tag NAME]    make the image in the Docker engine
#   build.sh [--light] --tar FILE      make its root file system as a tar file
#   build.sh [--light] --cache         make the tar file that the other two start from, print its name
#
# --light leaves out numpy, pandas and matplotlib: for tests, which import the
# image into other engines.
#
# The tar file is kept in ${XDG_CACHE_HOME:-~/.cache}/skandha, under a name that
# changes with this script, beside its checksum; while it is there and whole, nothing is
# downloaded and neither root nor debootstrap is needed. Making it takes both. It has
# the security updates of its day: the full one is made again after 30 days, where that
# is possible. An image that was made of it is not made again.
set -euo pipefail

release=bookworm
mirror=${DEBIAN_MIRROR:-http://deb.debian.org}
# The engine writes no /etc/hosts for containers without any network, so a module
# resolves localhost.
packages=python3,python3-pip,python3-venv,libnss-myhostname
science=python3-numpy,python3-pandas,python3-matplotlib
uid=65532

say() { printf 'sandbox image: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }

variant=full tag=skandha/sandbox:latest tar='' only_cache=
while [ $# -gt 0 ]; do
	case $1 in
	--light) variant=light ;;
	--tag) tag=${2:?--tag wants a name}; shift ;;
	--tar) tar=${2:?--tar wants a file}; shift ;;
	--cache) only_cache=1 ;;
	*) sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
	esac
	shift
done
[ "$variant" = light ] || packages=$packages,$science

days=30 # after which the full tar file is made again

recipe=$(sha256sum "$0" | cut -c1-16)-$variant-$(uname -m)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/skandha
rootfs_tar=$cache/sandbox-$recipe.tar

# Files that nothing in a sandbox reads: documentation, tests, and the compilers that scipy's
# packages want for building. The copyright files stay: the packages' licences want
# it; so does the list of packages, for scanners.
trim() { # DIR
	find "$1/usr/share/doc" -type f ! -name copyright -delete
	find "$1/usr/share/doc" -type l -delete
	find "$1/usr/share/doc" -depth -type d -empty -delete
	rm -rf "$1"/usr/share/{man,info,lintian,linda,bash-completion,bug,unicode,perl} "$1"/usr/share/locale/* \
		"$1"/var/lib/apt/lists/* "$1"/var/cache/{apt,debconf,ldconfig}/* "$1"/var/log/* "$1"/tmp/* \
		"$1"/usr/include/* "$1"/usr/lib/gcc "$1"/usr/bin/*-linux-gnu-* "$1"/usr/bin/{perl,perl5*-linux-gnu} \
		"$1"/usr/lib/*/perl "$1"/usr/lib/*/lib{asan,tsan,lsan,ubsan,perl}.so* "$1"/usr/lib/python3.*/config-* \
		"$1"/usr/lib/python3/dist-packages/pythran "$1"/usr/share/matplotlib/sample_data \
		"$1"/etc/machine-id "$1"/etc/hostname "$1"/etc/resolv.conf
	find "$1/usr/lib" -name '*.a' -delete
	find "$1"/usr/lib/python3*/dist-packages -depth -type d -name tests -exec rm -rf {} +
	# Nothing may gain privileges; the engine forbids it too.
	find "$1" -xdev -type f -perm /6000 -exec chmod ug-s {} +
	# Device nodes are the engine's to make, and importing them may be forbidden.
	rm -rf "${1:?}/dev" && mkdir -m 755 "$1/dev"
}

# What Debian has mended since the release.
update() { # DIR
	local work=$1 root=$1/root
	cat >"$root/etc/apt/sources.list" <<-EOF
		deb $mirror/debian $release main
		deb $mirror/debian $release-updates main
		deb $mirror/debian-security $release-security main
	EOF
	# This machine's way to the network, for as long as it takes.
	cp /etc/resolv.conf "$root/etc/resolv.conf"
	cp /etc/hosts "$root/etc/hosts"
	# Services of the packages must not start.
	printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d" && chmod 755 "$root/usr/sbin/policy-rc.d"
	# A TMPDIR of this machine is not there.
	env -u TMPDIR DEBIAN_FRONTEND=noninteractive chroot "$root" sh -c 'apt-get -q update && apt-get -q -y upgrade' >>"$work/log" 2>&1 || {
		tail -n 20 "$work/log" >&2
		fail "the security updates could not be installed; the log of apt ends above"
	}
	rm -f "$root/usr/sbin/policy-rc.d" "$root/etc/hosts"
}

# Making the list takes longer than most plots.
list_fonts() { # DIR
	chroot "$1" env -i PATH=/usr/bin:/bin MPLCONFIGDIR=/etc/matplotlib-cache python3 -c 'import matplotlib.font_manager' ||
		fail "matplotlib's list of fonts could not be made"
	ls "$1"/etc/matplotlib-cache/fontlist-v*.json >/dev/null
	chmod -R a+rX "$1/etc/matplotlib-cache"
}

make_tar() {
	[ "$(id -u)" = 0 ] || fail "only root can run debootstrap: run this as root, or build the Dockerfile beside it (that takes a registry)"
	command -v debootstrap >/dev/null || fail "debootstrap is missing (Debian: debootstrap): install it, or build the Dockerfile beside this (that takes a registry)"
	local work start=$SECONDS
	work=$(mktemp -d "$cache/sandbox-build.XXXXXX")
	# shellcheck disable=SC2064 # the directory of now
	trap "rm -rf --one-file-system '$work'" EXIT
	say "making the $variant root file system with debootstrap (some minutes)"
	debootstrap --variant=minbase --include="$packages" "$release" "$work/root" "$mirror/debian" >"$work/log" 2>&1 || {
		tail -n 20 "$work/log" >&2
		[ ! -e "$work/root/debootstrap/debootstrap.log" ] || tail -n 20 "$work/root/debootstrap/debootstrap.log" >&2
		fail "debootstrap failed; its log ends above"
	}
	update "$work"
	trim "$work/root"
	[ "$variant" = light ] || list_fonts "$work/root"
	printf 'sandbox:x:%s:%s::/workspace:/bin/sh\n' $uid $uid >>"$work/root/etc/passwd"
	printf 'sandbox:x:%s:\n' $uid >>"$work/root/etc/group"
	# What is mounted here takes over owner and mode.
	install -d -m 700 -o $uid -g $uid "$work/root/workspace"
	install -d -m 755 -o $uid -g $uid "$work/root/packages"
	tar --directory "$work/root" --numeric-owner --sort=name --one-file-system --create --file "$work/tar" .
	(cd "$work" && sha256sum tar | sed "s/ tar$/ ${rootfs_tar##*/}/") >"$work/sum"
	mv "$work/tar" "$rootfs_tar"
	mv "$work/sum" "$rootfs_tar.sha256"
	# Those of earlier recipes; a process that reads one keeps it open until it ends.
	find "$cache" -maxdepth 1 -name "sandbox-*-$variant-$(uname -m).tar" ! -path "$rootfs_tar" -exec rm -f {} {}.sha256 \;
	say "made $rootfs_tar: $(du -m "$rootfs_tar" | cut -f1) MB, $((SECONDS - start)) s"
	rm -rf "$work"
	trap - EXIT
}

# whole: the tar file is what was made, and of this month.
whole() { [ -s "$rootfs_tar.sha256" ] && (cd "$cache" && sha256sum --check --status "$rootfs_tar.sha256") && ! stale; }
stale() { [ "$variant" = full ] && [ "$(id -u)" = 0 ] && command -v debootstrap >/dev/null && [ -n "$(find "$rootfs_tar" -mtime +"$days" 2>/dev/null)" ]; }

# Which tar file an image was made of, without reading it all.
made_of() { echo "$recipe-$(cut -c1-16 "$rootfs_tar.sha256" 2>/dev/null)"; }
if [ -z "$only_cache$tar" ]; then
	command -v docker >/dev/null || fail "the docker command is missing (Debian: docker.io)"
	if [ "$(docker image inspect --format '{{index .Config.Labels "dev.skandha.sandbox.recipe"}}' "$tag" 2>/dev/null)" = "$(made_of)" ] && ! stale; then
		say "$tag is there"
		exit
	fi
fi

mkdir -p "$cache"
if ! whole; then
	exec 9>"$rootfs_tar.lock" # several tests may want it at the same time
	flock 9
	whole || make_tar
	exec 9>&-
	rm -f "$rootfs_tar.lock"
fi
if [ -n "$only_cache" ]; then
	echo "$rootfs_tar"
	exit
fi
if [ -n "$tar" ]; then
	cp --reflink=auto "$rootfs_tar" "$tar"
	say "wrote $tar"
	exit
fi

start=$SECONDS
docker import \
	--change "LABEL dev.skandha.image=sandbox dev.skandha.sandbox.recipe=$(made_of)" \
	--change "USER $uid:$uid" \
	--change "WORKDIR /workspace" \
	--change "ENV PATH=/usr/local/bin:/usr/bin:/bin" \
	--change 'CMD ["python3"]' \
	"$rootfs_tar" "$tag" >/dev/null
say "made $tag ($variant), $((SECONDS - start)) s"
