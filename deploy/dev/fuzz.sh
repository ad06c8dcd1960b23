#!/usr/bin/env bash
# Runs every fuzz target of the modules: fuzz.sh BUDGET MODULE... The budget is as
# -fuzztime takes it; a number of inputs (10000x) is better than a time: before Go 1.27
# a target whose time is over may fail with "context deadline exceeded", because of a
# race in go test (go.dev/issue/75804).
set -euo pipefail

budget=$1
shift
cd "$(dirname "$0")/../.."

ran=0
failed=()
for dir in $(grep -rl --include='*_test.go' '^func Fuzz' "$@" | xargs -r -n 1 dirname | sort -u); do
	for target in $(cat "$dir"/*_test.go | sed -nE 's/^func (Fuzz[A-Za-z0-9_]+)\(.*/\1/p'); do
		echo "$dir $target"
		go test -run '^$' -fuzz "^$target\$" -fuzztime "$budget" "./$dir" || failed+=("$dir $target")
		ran=$((ran + 1))
	done
done
echo "$ran fuzz targets ran for $budget each, ${#failed[@]} failed"
if [ "${#failed[@]}" -gt 0 ]; then
	printf 'failed: %s\n' "${failed[@]}"
fi
[ "$ran" -gt 0 ] && [ "${#failed[@]}" -eq 0 ]
