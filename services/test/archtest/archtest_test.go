package archtest

import (
	"os"
	"strings"
	"testing"
)

// The tree that this package lies in keeps every rule.
func TestRepository(t *testing.T) {
	repo, err := Load(os.DirFS("../../.."))
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range Rules() {
		t.Run(rule.Name, func(t *testing.T) {
			for _, breach := range rule.Check(repo) {
				t.Error(breach)
			}
		})
	}
}

// The test report decides whether a run passed. With pipefail, a test that is flaky
// fails the run although it has passed alone.
func TestTheReportDecides(t *testing.T) {
	b, err := os.ReadFile("../../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	runs := 0
	for line := range strings.Lines(string(b)) {
		if !strings.Contains(line, "| $(REPORT)") {
			continue
		}
		if runs++; !strings.HasPrefix(line, "\t@$(JUDGED);") {
			t.Errorf("go test decides, not the report: %s", line)
		}
	}
	if runs == 0 || !strings.Contains(string(b), "\nJUDGED   := set +o pipefail\n") {
		t.Errorf("%d runs of tests in the Makefile, or JUDGED does not unset pipefail", runs)
	}
}
