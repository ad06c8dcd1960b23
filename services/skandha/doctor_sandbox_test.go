package main

import (
	"strings"
	"testing"

	"skandha.dev/services/sandbox/driver"
	"skandha.dev/services/sandbox/selection"
)

func TestTheDoctorSaysHowWellASandboxIsolates(t *testing.T) {
	got := describeSandbox(driver.Report{
		Driver: "bwrap", Version: "bubblewrap 0.8.0", Isolation: "namespaces.", Python: "3.11.2",
		Enforced: []string{"pids"}, Missing: []string{"memory: there is no cgroup"},
	}, driver.DefaultLimits())
	var all strings.Builder
	for _, f := range got {
		all.WriteString(f.what + " | " + f.advice + "\n")
		if f.need {
			t.Errorf("%s is needed", f.what)
		}
	}
	for _, want := range []string{
		"bwrap (bubblewrap 0.8.0), Python 3.11.2", "namespaces", "limits: pids", "1024 MiB",
		"not enforce memory: there is no cgroup",
	} {
		if !strings.Contains(all.String(), want) {
			t.Errorf("%q is missing in:\n%s", want, all.String())
		}
	}
	if strings.Contains(all.String(), "strong enough") {
		t.Error("a weak driver is called strong")
	}
	if last := got[len(got)-1]; last.ok {
		t.Error("a missing limit is reported as ok")
	}
}

func TestTheDoctorSaysWhatToDoWithoutASandbox(t *testing.T) {
	g := &globals{Sandbox: selection.Flags{Driver: selection.None}}
	if got := g.sandboxFindings(t.Context()); len(got) != 1 || got[0].ok ||
		!strings.Contains(got[0].advice, "configuration disables") {
		t.Errorf("got %+v", got)
	}
	g.NoSandbox = true
	if got := g.sandboxFindings(t.Context()); len(got) != 1 || !got[0].ok {
		t.Errorf("got %+v", got)
	}
}
