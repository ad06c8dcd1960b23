package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/subject"
)

// The defaults of [Options].
const (
	defaultWithin = 15 * time.Second
	defaultLeave  = 15 * time.Second
	defaultLease  = 3 * time.Second
)

// Options of a run. Command is required.
type Options struct {
	Command []string                     // the plugin's program and its arguments
	Dir     string                       // working directory of it; default the current one
	Within  time.Duration                // time limit to register, and to reconnect after the bus was down
	Leave   time.Duration                // time limit to end when it is stopped
	Lease   time.Duration                // of the system that it is tested against; at least 1 s
	NoTools bool                         // call no tool
	Calls   map[string][]json.RawMessage // further arguments, by tool
	Cases   []hook.Envelope              // further questions; only Point, Data and Step are used
	Skip    []string                     // checks to leave out: a name, a prefix of it, or a pattern of path.Match
	Output  io.Writer                    // receives the plugin's output; nil: discarded
	Done    func(Result)                 // called with each check as it ends; may be nil
	Log     *slog.Logger                 // of the system; default: discarded
}

func (o Options) withDefaults() Options {
	for d, v := range map[*time.Duration]time.Duration{
		&o.Within: defaultWithin, &o.Leave: defaultLeave, &o.Lease: defaultLease,
	} {
		if *d == 0 {
			*d = v
		}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Done == nil {
		o.Done = func(Result) {}
	}
	return o
}

func (o Options) validate() error {
	if len(o.Command) == 0 {
		return errors.New("no command to start")
	}
	if o.Lease < time.Second {
		return fmt.Errorf("lease is %v, want 1s or more", o.Lease)
	}
	for _, s := range o.Skip {
		if _, err := path.Match(s, ""); err != nil || s == "" {
			return fmt.Errorf("skip: %q is not a name or pattern of a check", s)
		}
	}
	return nil
}

// Run tests a plugin. The error is the reason why it could not be tested at all; what is
// wrong with the plugin is in the report.
func Run(ctx context.Context, o Options) (*Report, error) {
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	c, err := theContract()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	s := &suite{Options: o, contract: c, report: &Report{Command: o.Command}, out: &output{to: o.Output}}
	s.rig, err = startRig(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("starting the system to test it against: %w", err)
	}
	defer s.stop()
	if s.first, err = s.spawn(ctx); err != nil {
		return nil, err
	}
	if err := s.run(ctx); err != nil {
		return nil, err
	}
	if !s.report.OK() {
		s.report.Output = s.out.tail()
	}
	s.report.TookMS = time.Since(began).Milliseconds()
	return s.report, nil
}

// suite is one run.
type suite struct {
	Options
	*rig
	contract *contract
	report   *Report
	out      *output

	manifest plugin.Manifest // as it registered
	hash     string

	first   *process     // the one that is asked
	second  *process     // its replica, while there is one
	ran     []*process   // all
	asked   atomic.Int64 // questions so far, for ids
	exits   []string     // how processes ended by themselves
	aborted string       // why nothing more can be checked
}

// step is a check and what it needs.
type step struct {
	name  string
	what  string
	needs []string // checks without which this one is meaningless
	run   func(ctx context.Context, c *check)
	skip  string // why it cannot be run; empty: it can
	ends  bool   // it handles the end of a process itself
	after bool   // it checks what was recorded, and needs no process
}

func (s *suite) run(ctx context.Context) error {
	for _, one := range s.entry() {
		s.do(ctx, one)
	}
	if err := errors.Join(s.knownCalls(), s.knownCases()); err != nil {
		return err
	}
	for _, list := range [][]step{s.questions(), s.life()} {
		for _, one := range list {
			one.needs = append([]string{"registers", "manifest"}, one.needs...)
			s.do(ctx, one)
		}
	}
	return ctx.Err()
}

// knownCalls refuses examples for unknown tools.
func (s *suite) knownCalls() error {
	if s.failed("registers") || s.failed("manifest") {
		return nil
	}
	var names []string
	for _, t := range s.manifest.Tools {
		names = append(names, t.Name)
	}
	for name := range s.Calls {
		if !slices.Contains(names, name) {
			return fmt.Errorf("an example is for the tool %q, which the plugin does not declare; it has %s", name, orNone(names))
		}
	}
	return nil
}

// knownCases refuses cases for hooks that the plugin does not have.
func (s *suite) knownCases() error {
	if s.failed("registers") || s.failed("manifest") {
		return nil
	}
	for i, e := range s.Cases {
		at := fmt.Sprintf("case %d", i+1)
		if !slices.ContainsFunc(s.manifest.Hooks, func(h plugin.Hook) bool { return h.Point == e.Point }) {
			return fmt.Errorf("%s: point is %q, where the plugin has no hook", at, e.Point)
		}
		if wrong := s.contract.problems("hooks/"+string(e.Point)+".json", e.Data); len(wrong) > 0 {
			return fmt.Errorf("%s: data does not fit schemas/hooks/%s.json: %s", at, e.Point, strings.Join(wrong, "; "))
		}
	}
	return nil
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// do runs one check, with a running plugin.
func (s *suite) do(ctx context.Context, one step) {
	r := Result{Check: one.name, What: one.what, Status: Skipped, Why: s.reason(one)}
	if r.Why == "" && s.aborted == "" && !one.after {
		s.revive(ctx)
	}
	if r.Why == "" && s.aborted != "" && !one.after {
		r.Why = s.aborted
	}
	if r.Why == "" && ctx.Err() == nil {
		began := time.Now()
		c := s.try(ctx, one)
		r.Findings, r.Notes, r.TookMS = c.findings, c.notes, time.Since(began).Milliseconds()
		if r.Status = Passed; !c.ok() {
			r.Status = Failed
		}
	}
	if ctx.Err() != nil {
		return
	}
	s.report.add(r)
	s.Done(r)
}

// try runs a check. If the process ends meanwhile, it is started again and the check is
// run once more: if it ends again, the check caused it; otherwise it ended by itself.
func (s *suite) try(ctx context.Context, one step) *check {
	c, before := &check{}, s.first
	one.run(ctx, c)
	how, over := before.ended()
	if !over || one.after || before != s.first || ctx.Err() != nil {
		return c
	}
	if before.reported = true; one.ends {
		if c.ok() && one.name != "leaves" {
			s.exits = append(s.exits, how+lastWords(s.out))
		}
		return c
	}
	said := how + ", during " + one.name + lastWords(s.out)
	s.revive(ctx)
	if s.aborted != "" {
		s.exits = append(s.exits, said)
		return c
	}
	again := &check{}
	one.run(ctx, again)
	if _, over := s.first.ended(); !over || again.ok() {
		s.exits = append(s.exits, said)
	}
	return again
}

// reason returns why a check is skipped; empty: it is run.
func (s *suite) reason(one step) string {
	for _, pattern := range s.Skip {
		if one.name == "registers" || one.name == "manifest" {
			break // nothing can be checked without
		}
		if ok, _ := path.Match(pattern, one.name); ok || one.name == pattern || strings.HasPrefix(one.name, pattern+"/") {
			return "as asked"
		}
	}
	if one.skip != "" {
		return one.skip
	}
	for _, need := range one.needs {
		if s.failed(need) {
			return fmt.Sprintf("needs %s, which failed", need)
		}
	}
	return ""
}

// failed reports whether a check has failed, or could not be made because another had.
func (s *suite) failed(name string) bool {
	return slices.ContainsFunc(s.report.Checks, func(r Result) bool {
		return r.Check == name && (r.Status == Failed || r.Status == Skipped && strings.HasPrefix(r.Why, "needs "))
	})
}

// revive restarts a plugin that has ended by itself, for the checks that are still to be
// run.
func (s *suite) revive(ctx context.Context) {
	how, over := s.first.ended()
	if !over {
		return
	}
	if !s.first.reported {
		s.exits = append(s.exits, how+lastWords(s.out))
	}
	p, err := s.spawn(ctx)
	if err != nil {
		s.aborted = "it ended, and could not be started again: " + err.Error()
		return
	}
	s.first.kill()
	s.first = p
	if why := s.admitted(ctx, p); why != "" {
		s.aborted = "it ended, was started again, and did not register: " + why
	}
}

// spawn starts a process of the plugin behind a new tap.
func (s *suite) spawn(ctx context.Context) (*process, error) {
	t, err := newTap(s.busAddr())
	if err != nil {
		return nil, err
	}
	p, err := startProcess(ctx, s.Options, t, s.join(t.addr), s.out)
	if err != nil {
		t.down()
		return nil, err
	}
	s.ran = append(s.ran, p)
	return p, nil
}

// stop ends all processes, then the system.
func (s *suite) stop() {
	for _, p := range s.ran {
		p.kill()
	}
	s.rig.stop()
}

// name returns the plugin's name.
func (s *suite) name() subject.Plugin { return s.manifest.Name }

// id returns a number that was not used before.
func (s *suite) id() int { return int(s.asked.Add(1)) }
