package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// killed makes a directory in memory and is killed, beside one of a living process and one with
// another label; then the leftovers are removed.
const killed = `set -euo pipefail
. ../../../.ci/scratch.sh
mine=$(mount_scratch "$1")
dead=$(bash -c '. ../../../.ci/scratch.sh; mount_scratch "$1"; kill -9 $$' _ "$1" || true)
other=${dead%-*}-other
mkdir "$other"
mount -t tmpfs other "$other"
touch "$mine/kept" "$dead/lost" "$other/kept"
sweep_scratch "$1"
`

// Runs of CI that were killed leave nothing in memory, and the next one touches no living run.
func TestALeftoverOfAKilledRunIsRemoved(t *testing.T) {
	prefix := filepath.Join(t.TempDir(), "skandha-ci-")
	cmd := exec.CommandContext(t.Context(), "unshare", "--user", "--map-root-user", "--mount",
		"bash", "-c", killed+`ls -d "$1"*; ls "$1"*`, "_", prefix)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	got := strings.ReplaceAll(string(out), prefix, "")
	removed, left, _ := strings.Cut(got, "\n")
	dead, ok := strings.CutPrefix(removed, "removing what a killed run left: ")
	if !ok || strings.Contains(left, dead) || strings.Count(left, "kept") != 2 || strings.Contains(left, "lost") {
		t.Errorf("it says\n%s", got)
	}
}
