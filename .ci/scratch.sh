# Directories in memory for the temporary files of tests, each a tmpfs labelled skandha-ci. The
# name says whose it is: PREFIX<pid>-<start of the process>-<random>. This file is sourced.

# started prints when a process started, in clock ticks since the boot; nothing without one.
started() { awk '{sub(/.*\) /, ""); print $20}' "/proc/$1/stat" 2>/dev/null; }

# mount_scratch PREFIX mounts one and prints where. It fails where nothing can be mounted.
mount_scratch() {
	local dir
	dir=$(mktemp -d "$1$$-$(started $$)-XXXXXX")
	mount -t tmpfs -o size=50%,mode=1777 skandha-ci "$dir" || { rmdir "$dir"; return 1; }
	echo "$dir"
}

# sweep_scratch PREFIX removes those of processes that were killed.
sweep_scratch() {
	local dir pid start
	while read -r dir; do
		IFS=- read -r pid start _ <<<"${dir#"$1"}"
		[ -n "$start" ] && [ "$(started "$pid")" != "$start" ] || continue
		echo "removing what a killed run left: $dir"
		umount -l "$dir" && rmdir "$dir" || true
	done < <(awk -v prefix="$1" '$1 == "skandha-ci" && index($2, prefix) == 1 {print $2}' /proc/self/mounts)
}
