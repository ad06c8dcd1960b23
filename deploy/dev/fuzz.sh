#!/usr/bin/env bash
# Runs every fuzz target of the modules: fuzz.sh BUDGET MODULE... The budget is as
# -fuzztime takes it; a number of inputs (10000x) is better than a time: before Go 1.27
# a target whose time is over may fail with "context deadline exceeded", because of a
# race in go test (go.dev/issue/75804).
#
# With GUIDED=no, inputs are not guided by coverage. That takes the ordinary build, where
# guidance takes another of every package and library: minutes on a machine without a cache.
set -euo pipefail

budget=$1
shift
cd "$(dirname "$0")/../.."
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# fuzz DIR TARGET runs one target.
fuzz() {
	if [ "${GUIDED:-yes}" = yes ]; then
		go test -run '^$' -fuzz "^$2\$" -fuzztime "$budget" "./$1"
		return
	fi
	[ -e "$scratch/$1/fuzz.test" ] || go test -c -vet=off -o "$scratch/$1/fuzz.test" "./$1" || return
	(cd "$1" && "$scratch/$1/fuzz.test" -test.run '^$' -test.fuzz "^$2\$" -test.fuzztime "$budget" \
		-test.fuzzcachedir "$scratch/cache")
}

ran=0
failed=()
for dir in $(grep -rl --include='*_test.go' '^func Fuzz' "$@" | xargs -r -n 1 dirname | sort -u); do
	for target in $(cat "$dir"/*_test.go | sed -nE 's/^func (Fuzz[A-Za-z0-9_]+)\(.*/\1/p'); do
		echo "$dir $target"
		fuzz "$dir" "$target" || failed+=("$dir $target")
		ran=$((ran + 1))
	done
done
echo "$ran fuzz targets ran for $budget each, ${#failed[@]} failed"
if [ "${#failed[@]}" -gt 0 ]; then
	printf 'failed: %s\n' "${failed[@]}"
fi
[ "$ran" -gt 0 ] && [ "${#failed[@]}" -eq 0 ]
