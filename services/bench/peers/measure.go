package peers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Options of a measurement.
type Options struct {
	Rounds   int           // how often each engine has its turn
	Alone    int           // turns, one after another, in each round
	Sessions int           // at once
	Each     int           // turns in each of those sessions, in each round
	Idle     time.Duration // how long the engines are left alone to see what they use
	Progress func(string)
}

// Result is what was measured of an engine.
type Result struct {
	Name string `json:"name"`
	Hello
	Median time.Duration `json:"median_ns,omitempty"` // of a turn, alone
	P95    time.Duration `json:"p95_ns,omitempty"`
	Rate   float64       `json:"turns_per_second,omitempty"`      // many sessions at once
	Turn   time.Duration `json:"processor_ns_per_turn,omitempty"` // at that rate
	Idle   float64       `json:"idle,omitempty"`                  // processors, without a turn
}

// PerCore is how many turns a second of one processor suffices for.
func (r Result) PerCore() float64 {
	if r.Turn == 0 {
		return 0
	}
	return float64(time.Second) / float64(r.Turn)
}

// sample is what has been collected of an engine.
type sample struct {
	*running
	took        []time.Duration
	turns       int
	total, used time.Duration
	idle        float64
	failed      error
}

// Measure starts all engines, then lets each run turns in every round, in an order that moves on by one. An engine
// that cannot run here, or fails, has no figures but the reason; if it is the first, what the others are compared
// with is missing, and that is an error.
func Measure(ctx context.Context, engines []Engine, o Options) ([]Result, error) {
	results := make([]Result, len(engines))
	samples := make([]*sample, len(engines))
	var here []*sample
	defer func() {
		for _, s := range here {
			s.stop()
		}
	}()
	for i, e := range engines {
		o.progress("starting " + e.Name)
		results[i].Name = e.Name
		r, err := start(ctx, e)
		if err != nil {
			results[i].Missing = err.Error()
			continue
		}
		samples[i] = &sample{running: r}
		here, results[i].Hello = append(here, samples[i]), r.Hello
		if r.Missing != "" {
			samples[i] = nil
		}
	}
	measured := slices.DeleteFunc(slices.Clone(samples), func(s *sample) bool { return s == nil })
	if err := o.measure(ctx, measured); err != nil {
		return nil, err
	}
	for i, s := range samples {
		if s != nil {
			s.sum(&results[i])
		}
	}
	if len(results) > 0 && results[0].Missing != "" {
		return nil, errors.New(results[0].Missing)
	}
	return results, nil
}

// sum computes the figures.
func (s *sample) sum(r *Result) {
	if s.failed != nil {
		r.Missing = s.failed.Error()
		return
	}
	slices.Sort(s.took)
	r.Median, r.P95 = s.took[len(s.took)/2], s.took[len(s.took)*95/100]
	r.Rate = float64(s.turns) / s.total.Seconds()
	r.Turn, r.Idle = s.used/time.Duration(s.turns), s.idle
}

func (o Options) progress(what string) {
	if o.Progress != nil {
		o.Progress(what)
	}
}

func (o Options) measure(ctx context.Context, samples []*sample) error {
	for _, s := range samples {
		o.progress("warming up " + s.Name)
		for _, r := range []Request{{Sessions: 1, Turns: o.Alone}, {Sessions: o.Sessions, Turns: o.Each}} {
			if s.failed == nil {
				_, s.failed = s.ask(ctx, r)
			}
		}
	}
	if err := o.rest(ctx, samples); err != nil {
		return err
	}
	for round := range o.Rounds {
		o.progress(fmt.Sprintf("round %d of %d", round+1, o.Rounds))
		for i := range samples {
			if s := samples[(i+round)%len(samples)]; s.failed == nil {
				s.failed = s.round(ctx, o)
			}
		}
	}
	return ctx.Err()
}

// rest measures what the engines use without a turn: each takes it from the others while they are measured.
func (o Options) rest(ctx context.Context, samples []*sample) error {
	before := make([]time.Duration, len(samples))
	for i, s := range samples {
		if s.failed == nil {
			before[i], s.failed = s.processor()
		}
	}
	begin := time.Now()
	select {
	case <-time.After(o.Idle):
	case <-ctx.Done():
		return ctx.Err()
	}
	for i, s := range samples {
		if s.failed == nil {
			var after time.Duration
			after, s.failed = s.processor()
			s.idle = (after - before[i]).Seconds() / time.Since(begin).Seconds()
		}
	}
	return nil
}

func (s *sample) processor() (time.Duration, error) { return processorTime("/proc", s.cmd.Process.Pid) }

func (s *sample) round(ctx context.Context, o Options) error {
	alone, err := s.ask(ctx, Request{Sessions: 1, Turns: o.Alone})
	if err != nil {
		return err
	}
	before, err := s.processor()
	if err != nil {
		return err
	}
	together, err := s.ask(ctx, Request{Sessions: o.Sessions, Turns: o.Each})
	if err != nil {
		return err
	}
	after, err := s.processor()
	if err != nil {
		return err
	}
	s.took = append(s.took, alone.Took...)
	s.turns += len(together.Took)
	s.total += together.Total
	s.used += after - before
	return nil
}
