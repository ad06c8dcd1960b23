package selection

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"skandha.dev/services/sandbox/driver"
	"skandha.dev/services/test/drivertest"
	"skandha.dev/services/test/natstest"
)

// named is a driver that works, or reports why not.
type named struct {
	*drivertest.Driver
	name   string
	strong bool
	err    error
}

func (n *named) Report(context.Context) (driver.Report, error) {
	return driver.Report{Driver: n.name, Untrusted: n.strong}, n.err
}

func (n *named) Start(ctx context.Context, spec driver.Spec) (driver.Sandbox, error) {
	if n.err != nil {
		return nil, n.err
	}
	return n.Driver.Start(ctx, spec)
}

func (n *named) Reap(context.Context) (int, error) { return 1, n.err }

func choose(t *testing.T, drivers ...*named) *Driver {
	t.Helper()
	d := &Driver{log: natstest.Logger(t), looking: make(chan struct{}, 1)}
	for _, n := range drivers {
		n.Driver = drivertest.New(t)
		d.choices = append(d.choices, choice{n.name, n})
	}
	return d
}

func (d *Driver) which(t *testing.T) string {
	t.Helper()
	r, err := d.Report(natstest.Context(t))
	if err != nil {
		return err.Error()
	}
	return r.Driver
}

func unavailable(what string) error { return fmt.Errorf("%w: %s", driver.ErrUnavailable, what) }

func TestTheFirstThatWorksIsTaken(t *testing.T) {
	d := choose(t, &named{name: "one"}, &named{name: "two"})
	if got := d.which(t); got != "one" {
		t.Errorf("got %s", got)
	}
	d = choose(t, &named{name: "one", err: unavailable("no engine")}, &named{name: "two"})
	if got := d.which(t); got != "two" {
		t.Errorf("got %s", got)
	}
	if got := strings.Join(d.Passed(), "; "); got != "one: no engine" {
		t.Errorf("passed over %q", got)
	}
}

func TestWithoutAnyTheReasonsOfAllAreGiven(t *testing.T) {
	d := choose(t, &named{name: "one", err: unavailable("start an engine")},
		&named{name: "two", err: unavailable("install bubblewrap")})
	d.refused = []string{"three: not allowed"}
	_, err := d.Start(natstest.Context(t), driver.Spec{Name: "b"})
	if !errors.Is(err, driver.ErrUnavailable) {
		t.Fatalf("got %v", err)
	}
	if want := driver.ErrUnavailable.Error() +
		": three: not allowed; one: start an engine; two: install bubblewrap"; err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
	d = choose(t)
	if _, err := d.Start(natstest.Context(t), driver.Spec{}); !errors.Is(err, driver.ErrUnavailable) ||
		!strings.Contains(err.Error(), "none") {
		t.Errorf("got %v", err)
	}
}

func TestOneThatStopsWorkingIsReplacedByTheNext(t *testing.T) {
	first, second := &named{name: "one"}, &named{name: "two"}
	d := choose(t, first, second)
	if got := d.which(t); got != "one" {
		t.Fatalf("got %s", got)
	}
	first.err = unavailable("the engine was stopped")
	b, err := d.Start(natstest.Context(t), driver.Spec{Name: "b", Args: []string{"-c", "1"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Destroy(natstest.Context(t)); err != nil {
		t.Error(err)
	}
	if got := d.which(t); got != "two" {
		t.Errorf("got %s", got)
	}
	first.err = errors.New("another error is the caller's")
	second.err = first.err
	if _, err := d.Start(natstest.Context(t), driver.Spec{}); !errors.Is(err, second.err) {
		t.Errorf("got %v", err)
	}
}

func TestOneThatIsStartedLaterIsFound(t *testing.T) {
	n := &named{name: "one", err: unavailable("start an engine")}
	d := choose(t, n)
	if got := d.which(t); !strings.Contains(got, "start an engine") {
		t.Fatalf("got %s", got)
	}
	n.err = nil
	natstest.Eventually(t, "it is found", func() bool { return d.which(t) == "one" })
}

func TestAmongTenantsWhoDoNotTrustEachOtherAWeakOneIsRefused(t *testing.T) {
	d := choose(t, &named{name: "weak"}, &named{name: "strong", strong: true})
	d.untrusted = true
	if got := d.which(t); got != "strong" {
		t.Errorf("got %s", got)
	}
	d = choose(t, &named{name: "weak"})
	d.untrusted = true
	if got := d.which(t); !strings.Contains(got, "not isolate strongly enough") {
		t.Errorf("got %s", got)
	}
}

func TestAllAreAskedToReap(t *testing.T) {
	d := choose(t, &named{name: "one"}, &named{name: "two", err: unavailable("x")},
		&named{name: "three", err: errors.New("cannot list")})
	n, err := d.Reap(natstest.Context(t))
	if n != 3 || err == nil || !strings.Contains(err.Error(), "three: cannot list") ||
		strings.Contains(err.Error(), "two") {
		t.Errorf("got %d, %v", n, err)
	}
}

func TestTheConfigurationIsCheckedByName(t *testing.T) {
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{Config{Driver: "podman"}, "driver"},
		{Config{Driver: Bwrap, Image: "x"}, "image"},
		{Config{Driver: Bwrap, Untrusted: true, Dir: t.TempDir()}, "trust"},
	} {
		if _, err := New(c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: got %v, want an error about %s", c.cfg, err, c.want)
		}
	}
	for _, name := range []string{Auto, Docker, Bwrap, None, ""} {
		d, err := New(Config{Driver: name, Dir: t.TempDir(), Log: natstest.Logger(t)})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if err := d.Close(); err != nil {
			t.Errorf("closing %s: %v", name, err)
		}
	}
}

func TestTheFlagsHaveWorkingDefaults(t *testing.T) {
	if err := (Flags{}).Validate(); err != nil {
		t.Error(err)
	}
	if (Flags{}).Limits() != driver.DefaultLimits() {
		t.Errorf("got %+v", Flags{}.Limits())
	}
	f := Flags{Driver: "x", Index: "ftp://x", Memory: 1}
	err := f.Validate()
	for _, want := range []string{"driver", "index", "memory"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is not named: %v", want, err)
		}
	}
}
