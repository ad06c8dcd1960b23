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

// patience bounds a wait for what must happen soon; nothing is timed. Gone is how
// long something of a sandbox may be there when Destroy has returned, on a machine that
// does much else.
const (
	patience = 80 * time.Second
	gone     = 30 * time.Second
)

// Suite is a driver under test, with what the suite cannot know of its engine.
type Suite struct {
	// New makes a driver as a service would: each is a service of its own to Reap.
	// The suite closes it.
	New func(t *testing.T) driver.Driver
	// Skip names what this driver cannot stop here, with the reason. A name that is
	// no probe, or that the driver's report does not list as missing, fails the suite.
	Skip map[string]string
	// SkipNow skips the test; nil: the suite does, and fails where
	// SKANDHA_REQUIRE=all. It is the caller's so that it stands in the test that
	// archtest lets skip even there.
	SkipNow func(t *testing.T, reason string)
	// Leftovers lists what the engine itself knows of the sandbox with that name, e.g.
	// its containers; the suite looks at processes, mounts and cgroups on its own.
	Leftovers func(t *testing.T, name string) []string
	// Child is a command that makes a driver like New's, in a process of its own,
	// and calls [Orphan] with it and the name.
	Child func(t *testing.T, name string) *exec.Cmd
	// Listen listens in the network namespace of the engine, when that is not this
	// process's; nil: it is.
	Listen func(t *testing.T, address string) net.Listener
	// Group limits the run to one group of probes; empty: all.
	Group string
}

// suite is a run of it.
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

// Run holds a driver against the contract and probes it. It needs Linux, Python 3
// is in the sandboxes, and the sandboxes' processes are processes of this host.
func Run(t *testing.T, s Suite) {
	r := &suite{Suite: s, t: t, host: newHost(t, s.Listen)}
	r.driver = r.open(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var err error
	if r.report, err = r.driver.Report(ctx); err != nil {
		t.Fatalf("the driver reports: %v", err)
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

// open makes a driver that is closed with the test.
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

// knowsSkips fails for names in Skip that are no probe, and for those that the
// driver does not own up to: what is skipped is skipped by name, no reason
// outlives its probe, and operators are told.
func (s *suite) knowsSkips(t *testing.T) {
	var names []string
	for _, g := range groups() {
		for _, p := range g.probes {
			if slices.Contains(names, p.name) {
				t.Errorf("two probes are called %q", p.name)
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

// enforces reports whether the driver says that it holds the limit.
func (s *suite) enforces(limit string) bool { return slices.Contains(s.report.Enforced, limit) }

// missing is why the driver says that it does not hold the limit.
func (s *suite) missing(limit string) string {
	for _, m := range s.report.Missing {
		if reason, ok := strings.CutPrefix(m, limit+":"); ok {
			return fmt.Sprintf("the driver does not hold %s here: %s", limit, strings.TrimSpace(reason))
		}
	}
	return fmt.Sprintf("the driver does not hold %s here, and does not say why: %q", limit, s.report.Missing)
}

// group is a family of probes.
type group struct {
	name   string
	probes []probe
}

// groups are all the probes.
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

// Orphan starts one sandbox and prints its name, then waits to be killed. It is what
// [Suite].Child's process does.
func Orphan(ctx context.Context, d driver.Driver, name string) error {
	b, c, err := openSandbox(ctx, d, driver.Spec{Name: name})
	if err != nil {
		return fmt.Errorf("starting a sandbox to be orphaned: %w", err)
	}
	if err := c.Mkdir(ctx, "alive"); err != nil {
		return fmt.Errorf("speaking to a sandbox to be orphaned: %w", err)
	}
	fmt.Println("orphan", b.Name())
	<-ctx.Done()
	return ctx.Err()
}
