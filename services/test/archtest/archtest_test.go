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

// Every run of tests is one of the Makefile's `tests`, which runs failed tests again and
// reports them: go test alone would fail on the first flaky test.
func TestTheReportDecides(t *testing.T) {
	b, err := os.ReadFile("../../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	runs := 0
	for line := range strings.Lines(string(b)) {
		if strings.HasPrefix(line, "\t$(call tests,") {
			runs++
		}
		if strings.HasPrefix(line, "\t") && strings.Contains(line, "go test") && !strings.Contains(line, "e2e/storm") {
			t.Errorf("go test decides, not the report: %s", line)
		}
	}
	if runs != 5 || !strings.Contains(string(b),
		"$(REPORT) --keep dist/flaky/$(1) dist/tests/$(1).jsonl || code=1; exit $$code\n") {
		t.Errorf("%d runs of tests in the Makefile, want 5 with a report each", runs)
	}
}
