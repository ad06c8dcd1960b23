#!/usr/bin/env bash
# Runs every fuzz target of the modules for a while: fuzz.sh TIME MODULE...
set -euo pipefail

time=$1
shift
cd "$(dirname "$0")/../.."

ran=0
for dir in $(grep -rl --include='*_test.go' '^func Fuzz' "$@" | xargs -r -n 1 dirname | sort -u); do
	for target in $(cat "$dir"/*_test.go | sed -nE 's/^func (Fuzz[A-Za-z0-9_]+)\(.*/\1/p'); do
		echo "$dir $target"
		go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "./$dir"
		ran=$((ran + 1))
	done
done
echo "$ran fuzz targets ran for $time each"
[ "$ran" -gt 0 ]
