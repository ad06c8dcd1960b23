package sandboxtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheTableNamesWhatWasSkippedAndGoesToTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report")
	t.Setenv("SKANDHA_PROBE_REPORT", path)
	table := table{driver: "a driver, 1.0"}
	table.add("kernel", "mount", outcome{wasRefused, "EPERM"})
	table.add("resources", "fork bomb", outcome{wasSkipped, "there is\nno cgroup"})
	table.add("io", "flood", outcome{isHole, strings.Repeat("ä", 500)})
	table.print(t)
	table.print(t)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	for _, want := range []string{
		"probes against a driver, 1.0\n", "kernel    | mount     | refused | EPERM\n", "| there is no cgroup\n",
		"3 probes: 1 refused, 0 bounded, 0 harmless, 1 skipped, 1 holes\n", "SKIPPED fork bomb: there is\nno cgroup\n",
		"ä…\n",
	} {
		if strings.Count(text, want) != 2 {
			t.Errorf("the report, printed twice, does not have %q twice:\n%s", want, text)
		}
	}
}
