package sandboxtest

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"skandha.dev/services/sandbox/driver"
)

// patience bounds a wait for what must happen soon; durations are not asserted. gone bounds
// how long remains of a sandbox may exist after Destroy has returned, on a busy machine.
const (
	patience = 80 * time.Second
	gone     = 30 * time.Second
)

// Suite is a driver under test, with what the suite cannot know about its engine.
type Suite struct {
	// New returns a driver as a service would: for Reap each one is a separate service.
	// The suite closes it.
	New func(t *testing.T) driver.Driver
	// Skip names what this driver cannot prevent here, with the reason. A name that is
	// not a probe, or that the driver's report does not list as missing, fails the suite.
	Skip map[string]string
	// SkipNow skips the test; nil: the suite does, and fails where
	// SKANDHA_REQUIRE=all. The caller provides it, so that the call is in the test that
	// archtest lets skip even there.
	SkipNow func(t *testing.T, reason string)
	// Leftovers lists what the engine itself has of the sandbox with that name, e.g.
	// its containers; the suite checks processes, mounts and cgroups itself.
	Leftovers func(t *testing.T, name string) []string
	// Child returns a command that creates a driver like New's, in a separate process,
	// and calls [Orphan] with it and the name.
	Child func(t *testing.T, name string) *exec.Cmd
	// Listen listens in the network namespace of the engine, when that is not this
	// process's; nil: it is.
	Listen func(t *testing.T, address string) net.Listener
	// Group limits the run to one group of probes; empty: all.
	Group string
}

// suite is a run of a Suite.
type suite struct {
	Suite
	t         *testing.T
	driver    driver.Driver
	report    driver.Report
	host      *host
	neighbour *sandbox
	table     table
	sandboxes atomic.Int64
}

// Run checks a driver against the contract and probes it. It requires Linux, Python 3 in
// the sandboxes, and that the sandboxes' processes are processes of this host.
func Run(t *testing.T, s Suite) {
	r := &suite{Suite: s, t: t, host: newHost(t, s.Listen)}
	r.driver = r.open(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var err error
	if r.report, err = r.driver.Report(ctx); err != nil {
		t.Fatalf("the driver's report: %v", err)
	}
	r.table.driver = r.report.Driver + ", " + r.report.Version
	t.Cleanup(func() { r.table.print(t) })
	r.knowsSkips(t)
	r.neighbour = r.start(t, sandboxOptions{})
	r.neighbour.remember(t)
	if r.Group == "" || r.Group == "conformance" {
		t.Run("conformance", r.conformance)
	}
	for _, g := range groups() {
		if r.Group == "" || r.Group == g.name {
			t.Run(g.name, func(t *testing.T) { r.probeAll(t, g) })
		}
	}
	if err := r.neighbour.end(); err != nil {
		t.Errorf("the neighbour's end: %v", err)
	}
}

// open returns a driver that is closed with the test.
func (s *suite) open(t *testing.T) driver.Driver {
	t.Helper()
	d := s.New(t)
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("closing the driver: %v", err)
		}
	})
	return d
}

// knowsSkips fails for names in Skip that are not probes, and for those that the driver
// does not report: whatever is skipped is skipped by name, no reason outlives its probe,
// and operators are informed.
func (s *suite) knowsSkips(t *testing.T) {
	var names []string
	for _, g := range groups() {
		for _, p := range g.probes {
			if slices.Contains(names, p.name) {
				t.Errorf("duplicate probe %q", p.name)
			}
			names = append(names, p.name)
		}
	}
	for name, reason := range s.Skip {
		if !slices.Contains(names, name) || reason == "" {
			t.Errorf("Skip names %q with the reason %q; want the name of a probe and a reason", name, reason)
		}
		if !slices.ContainsFunc(s.report.Missing, func(m string) bool { return strings.HasPrefix(m, name+":") }) {
			t.Errorf("%q is skipped, and the driver's report does not list it: %q", name, s.report.Missing)
		}
	}
}

// enforces reports whether the driver reports the limit as enforced.
func (s *suite) enforces(limit string) bool { return slices.Contains(s.report.Enforced, limit) }

// missing returns the driver's reason why it does not enforce the limit.
func (s *suite) missing(limit string) string {
	for _, m := range s.report.Missing {
		if reason, ok := strings.CutPrefix(m, limit+":"); ok {
			return fmt.Sprintf("the driver does not enforce %s here: %s", limit, strings.TrimSpace(reason))
		}
	}
	return fmt.Sprintf("the driver does not enforce %s here, and gives no reason: %q", limit, s.report.Missing)
}

// group is a family of probes.
type group struct {
	name   string
	probes []probe
}

// groups returns all probes.
func groups() []group {
	return []group{
		{"resources", resourceProbes()},
		{"host", slices.Concat(hostProbes(), networkProbes())},
		{"kernel", slices.Concat(syscallProbes(), privilegeProbes(), processProbes())},
		{"files", slices.Concat(pathProbes(), treeProbes(), archiveProbes())},
		{"io", outputProbes()},
		{"lifecycle", lifecycleProbes()},
	}
}

// Orphan starts one sandbox and prints its name, then waits to be killed. The process
// of [Suite].Child calls it.
func Orphan(ctx context.Context, d driver.Driver, name string) error {
	b, c, err := openSandbox(ctx, d, driver.Spec{Name: name})
	if err != nil {
		return fmt.Errorf("starting a sandbox to be orphaned: %w", err)
	}
	if err := c.Mkdir(ctx, "alive"); err != nil {
		return fmt.Errorf("calling a sandbox to be orphaned: %w", err)
	}
	fmt.Println("orphan", b.Name())
	<-ctx.Done()
	return ctx.Err()
}
