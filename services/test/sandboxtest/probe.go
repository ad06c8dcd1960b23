package sandboxtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"skandha.dev/services/sandbox/agent"
	"skandha.dev/services/sandbox/driver"
)

// probe is one attempt to escape or to do harm.
type probe struct {
	name string
	// alone requires a sandbox that no other probe has used or will use.
	alone  bool
	limits func(*driver.Limits) // of that sandbox
	limit  string               // what the driver must enforce for this probe, e.g. "pids"
	unfit  string               // why it cannot run on this machine
	try    func(*attempt) (outcome, error)
}

// verdict is how a probe passed.
type verdict string

const (
	wasRefused  verdict = "refused"  // the code was refused
	wasBounded  verdict = "bounded"  // it ran, within bounds
	wasHarmless verdict = "harmless" // it ran, and reached only its own sandbox
	wasSkipped  verdict = "skipped"
	isHole      verdict = "HOLE"
)

// outcome is the result of a probe that passed.
type outcome struct {
	verdict verdict
	note    string
}

func refused(format string, args ...any) (outcome, error) {
	return outcome{wasRefused, fmt.Sprintf(format, args...)}, nil
}

func bounded(format string, args ...any) (outcome, error) {
	return outcome{wasBounded, fmt.Sprintf(format, args...)}, nil
}

func harmless(format string, args ...any) (outcome, error) {
	return outcome{wasHarmless, fmt.Sprintf(format, args...)}, nil
}

// hole is the outcome of a probe that fails.
func hole(format string, args ...any) (outcome, error) {
	return outcome{}, fmt.Errorf(format, args...)
}

// attempt is a running probe.
type attempt struct {
	*sandbox

	ctx  context.Context //nolint:containedctx // an attempt is one call, and it simplifies a hundred probes
	t    testing.TB
	host *host
}

// probeAll runs a group. Its probes share a sandbox while it is usable.
func (s *suite) probeAll(t *testing.T, g group) {
	var shared *sandbox
	defer func() {
		if shared != nil {
			if err := shared.end(); err != nil {
				t.Errorf("the end of the sandbox that the probes shared: %v", err)
			}
		}
	}()
	for _, p := range g.probes {
		t.Run(p.name, func(t *testing.T) {
			b := shared
			if s.skipped(t, g, p) {
				return
			}
			if p.alone || b == nil {
				b = s.start(s.t, sandboxOptions{limits: p.limits})
			}
			o, usable := s.probe(t, p, b)
			if t.Failed() {
				o.verdict = isHole
			}
			s.table.add(g.name, p.name, o)
			switch {
			case p.alone || !usable:
				if err := b.end(); err != nil {
					t.Errorf("the end of its sandbox: %v", err)
				}
				if !p.alone {
					shared = nil
				}
			default:
				shared = b
			}
		})
	}
}

// skipped skips what the suite's caller declared that its driver cannot prevent, and what
// the driver itself reports as a limit that it cannot enforce here.
func (s *suite) skipped(t *testing.T, g group, p probe) bool {
	reason := s.Skip[p.name]
	if reason == "" {
		reason = p.unfit
	}
	if reason == "" && p.limit != "" && !s.enforces(p.limit) {
		reason = s.missing(p.limit)
	}
	if reason == "" {
		return false
	}
	s.table.add(g.name, p.name, outcome{wasSkipped, reason})
	switch {
	case s.Skip[p.name] != "" && s.SkipNow != nil:
		s.SkipNow(t, reason)
	case os.Getenv("SKANDHA_REQUIRE") == "all":
		t.Fatal(reason)
	default:
		t.Skip(reason)
	}
	return true
}

// probe runs one probe, and then checks the sandbox, the neighbour and the host.
func (s *suite) probe(t *testing.T, p probe, b *sandbox) (o outcome, usable bool) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	a := &attempt{sandbox: b, ctx: ctx, t: t, host: s.host}
	o, err := p.try(a)
	if err != nil {
		o = outcome{isHole, err.Error()}
		t.Error(err)
	}
	usable, err = b.answersOrIsBroken(ctx)
	if err != nil {
		t.Errorf("afterwards: %v", err)
	}
	if !usable {
		o.note += " (its sandbox is broken)"
	}
	if err := s.neighbour.knows(ctx); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	if err := s.host.unharmed(); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	return o, usable
}

// says runs code whose last expression is a text, and returns the text.
func (a *attempt) says(code string) (string, error) {
	exit, err := a.python(a.ctx, code)
	if err != nil {
		return "", err
	}
	if exit.Signal != "" {
		return exit.Signal, nil
	}
	var out string
	return out, decode(exit, &out)
}

// mustRefuse passes when the code returns one of the errors that mean a refusal.
func (a *attempt) mustRefuse(code string, errnos ...string) (outcome, error) {
	said, err := a.says(code)
	if err != nil {
		return outcome{}, err
	}
	if slices.Contains(errnos, said) {
		return refused("%s", said)
	}
	return hole("it says %q, want one of %q", said, errnos)
}

// shell runs a shell script.
func (a *attempt) shell(code string) (agent.Exit, error) {
	return a.run(a.ctx, agent.Run{Kind: agent.Shell, Code: code})
}

// watch measures the sandbox's processes from outside while f runs, and returns the
// maximum.
func (a *attempt) watch(measure func(namespace) int, f func() error) (most int, err error) {
	stop := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			most = max(most, measure(a.ns))
			select {
			case <-tick.C:
			case <-stop:
				return
			}
		}
	})
	err = f()
	close(stop)
	watching.Wait()
	return most, err
}

// whileNeighbourAnswers runs f and calls the neighbour repeatedly meanwhile.
func (a *attempt) whileNeighbourAnswers(f func() error) (asked int, err error) {
	done := make(chan error, 1)
	go func() { done <- f() }()
	for {
		if err := a.s.neighbour.knows(a.ctx); err != nil {
			return asked, errors.Join(err, <-done)
		}
		asked++
		select {
		case err := <-done:
			return asked, err
		default:
		}
	}
}
