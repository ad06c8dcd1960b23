package docker

import (
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"skandha.dev/services/sandbox/docker/form"
	"skandha.dev/services/sandbox/driver"
	"skandha.dev/services/test/enginetest"
)

// Where the engine offers a runtime with the name runsc, it is used. Here it is runc under
// that name: the test covers the choice, not gVisor.
func TestRuntimeIsTheStrongestThatTheEngineOffers(t *testing.T) {
	enginetest.Need(t, "runc")
	path, err := exec.LookPath("runc")
	if err != nil {
		t.Fatal(err)
	}
	e := enginetest.Start(t, "--add-runtime", Runsc+"="+path)
	for configured, want := range map[string]string{"": Runsc, Auto: Runsc, Runsc: Runsc, Runc: Runc} {
		r := rigOn(t, e, func(c *Config) { c.Runtime = configured })
		report, err := r.Report(t.Context())
		if err != nil || !strings.HasSuffix(report.Version, ", "+want) ||
			strings.Contains(report.Isolation, "gVisor") != (want == Runsc) {
			t.Errorf("for %q, it is %+v, %v, want %s", configured, report, err, want)
		}
		b, err := r.Start(t.Context(), driver.Spec{Name: "a", Args: []string{"-c", deaf}, Limits: small})
		if err != nil {
			t.Fatal(err)
		}
		memory := small.Memory
		if want == Runsc {
			memory += form.GVisorMemory
		}
		got := e.Docker(t, "inspect", "--format", "{{.HostConfig.Runtime}} {{.HostConfig.Memory}} {{.HostConfig.MemorySwap}}",
			b.(*sandbox).id)
		if n := strconv.FormatInt(memory, 10); got != want+" "+n+" "+n {
			t.Errorf("for %q, the sandbox has %q, want %s and %s bytes", configured, got, want, n)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}
