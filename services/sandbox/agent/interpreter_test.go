package agent_test

import (
	"strings"
	"testing"

	"skandha.dev/services/sandbox/agent"
)

// Where the kernel has no pidfds, the end of a run is polled.
func TestItWorksWithoutPidfds(t *testing.T) {
	b := startWith(t, options{Config: agent.WithoutPidfds()})
	b.works(t)
	if x := b.shell(t, "sleep .05; echo a; sleep 1000 & exit 3"); x.Code != 3 || x.Stdout.Text != "a\n" || x.Strays != 1 {
		t.Errorf("got %+v", x)
	}
	b.works(t)
}

func TestEachInterpreterThatIsHereWillDo(t *testing.T) {
	found := 0
	for _, version := range []string{"3.9", "3.10", "3.11", "3.12", "3.13", "3.14"} {
		name := findPython(version)
		if name == "" {
			continue
		}
		found++
		t.Run(version, func(t *testing.T) {
			t.Setenv("SKANDHA_TEST_PYTHON", name)
			for range 2 { // from the source, and as it was compiled
				b := start(t)
				b.works(t)
				if x := b.python(t, "def f(): 1/0", "f()"); x.Code != 1 || !strings.Contains(x.Stderr.Text, "ZeroDivisionError") {
					t.Errorf("got %+v", x)
				}
				b.write(t, "a/b", "text")
				if n, err := b.Edit(t.Context(), "a/b", "ex", "oas", false); n != 1 || err != nil || b.read(t, "a/b") != "toast" {
					t.Errorf("edit: %d, %v", n, err)
				}
				if m, _, err := b.Grep(t.Context(), agent.GrepQuery{Pattern: "to.st", Glob: "*"}); len(m) != 1 || err != nil {
					t.Errorf("grep: %+v, %v", m, err)
				}
				if x := b.shell(t, "sleep 100 & mkdir -p out; echo > out/x"); x.Strays != 1 || len(x.Files) != 1 {
					t.Errorf("got %+v", x)
				}
				b.works(t)
			}
		})
	}
	if found == 0 {
		lack(t, "no interpreter is found by its version")
	}
}
