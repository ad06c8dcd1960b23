package executor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"skandha.dev/pkg/executor"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
)

// The defaults and limits.
const (
	// DefaultSlots is how many attempts the default pool runs at once.
	DefaultSlots = 16
	// DefaultDrainTimeout bounds how long an instance that ends waits for its work.
	DefaultDrainTimeout = 30 * time.Second
	// Grace is how long work may take to heed the end of its context before it is
	// answered for.
	Grace = 2 * time.Second
	// MaxWatchers is how many callers of one attempt are told of it.
	MaxWatchers = 8
	// MaxProgress is the longest progress message, in bytes.
	MaxProgress = 1 << 10

	// waitingPerSlot is how many attempts may wait, for each slot of a pool.
	waitingPerSlot = 4
	// quiet is how long an attempt may take before its caller is told that it runs.
	quiet = 2 * time.Millisecond
	// maxKept bounds the results that wait for their release, in bytes. Beyond it
	// new work is refused as full: core is not committing.
	maxKept = 256 << 20
)

// Work does what one attempt asks for. It runs on a goroutine of its own.
//
// The context carries the caller's trace and ends at the attempt's deadline or
// when it is stopped; Work should return soon after. It may call progress at any
// time, from one goroutine or many. Of the answer, Result or Response or Error
// count, or that it is [DidNotRun]; the rest is filled in. A panic is answered as a
// failure.
type Work func(ctx context.Context, req executor.Request, progress func(string)) executor.Answer

// Offer is what an instance can do.
type Offer struct {
	Tools     []tool.Spec     // of a runner; names are unique
	Providers []provider.Info // of a provider, in order of preference
}

// Config says what an executor instance is. Kind, Service, an offer and Work are needed.
type Config struct {
	Kind    subject.ExecutorKind
	Service string // "toolrunner", "sandbox", "provider", …
	Offer
	// Updates, if it is not nil, replaces the offer whenever one is received, for
	// example from [Offers]. An offer that is not valid is logged and ignored. Work
	// that has begun goes on; of what waits for a slot, Work sees that it is not
	// offered any more.
	Updates <-chan Offer
	Work    Work

	// Pools are the slots that attempts compete for; Busy is ignored. The pool
	// "default" always exists, with DefaultSlots unless it is listed.
	Pools []executor.Pool
	// Waiting is how many attempts may wait per pool; default 4 for each slot.
	// Negative: none.
	Waiting int
	// DrainTimeout bounds the wait for running work and for the release of its
	// results when the instance ends; default 30 s.
	DrainTimeout time.Duration
	Host         string // default: the machine's name
	Logger       *slog.Logger
}

func (c Config) withDefaults() Config {
	c.Pools = slices.Clone(c.Pools)
	if !slices.ContainsFunc(c.Pools, func(p executor.Pool) bool { return p.Name == executor.DefaultPool }) {
		c.Pools = append(c.Pools, executor.Pool{Name: executor.DefaultPool, Slots: DefaultSlots})
	}
	c.DrainTimeout = cmp.Or(c.DrainTimeout, DefaultDrainTimeout)
	if c.Host == "" {
		c.Host, _ = os.Hostname() // for people; an empty one does no harm
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

// Validate reports every field that is wrong; each error names its field.
func (c Config) Validate() error {
	var errs []error
	if c.Kind != subject.Runner && c.Kind != subject.Provider {
		errs = append(errs, fmt.Errorf("executor.kind is %q, want %q or %q", c.Kind, subject.Runner, subject.Provider))
	}
	if !subject.Valid(c.Service) {
		errs = append(errs, fmt.Errorf("executor.service: %q is no id", c.Service))
	}
	if c.Work == nil {
		errs = append(errs, errors.New("executor.work is nil"))
	}
	if c.DrainTimeout < 0 {
		errs = append(errs, fmt.Errorf("executor.drain_timeout is %v, want 0 (default) or more", c.DrainTimeout))
	}
	pools := map[string]bool{executor.DefaultPool: true}
	seen := map[string]bool{}
	for _, p := range c.Pools {
		if p.Name == "" || p.Slots < 1 || seen[p.Name] {
			errs = append(errs, fmt.Errorf("executor.pools: %q with %d slots: want a name that is used once and 1 slot or more", p.Name, p.Slots))
		}
		pools[p.Name], seen[p.Name] = true, true
	}
	return errors.Join(append(errs, c.Offer.validate(c.Kind, pools))...)
}

func (o Offer) validate(kind subject.ExecutorKind, pools map[string]bool) error {
	var errs []error
	if kind == subject.Runner && len(o.Providers) > 0 || kind == subject.Provider && len(o.Tools) > 0 {
		errs = append(errs, errors.New("executor: a runner offers tools and a provider offers providers, not both"))
	}
	names := map[string]bool{}
	for _, t := range o.Tools {
		if t.Name == "" || len(subject.Encode(t.Name)) > subject.MaxIDLen || names[t.Name] {
			errs = append(errs, fmt.Errorf("executor.tools: name %q: want one that is used once, 1 to %d bytes when encoded", t.Name, subject.MaxIDLen))
		}
		if !pools[poolOf(t)] {
			errs = append(errs, fmt.Errorf("executor.tools: %q wants pool %q, which is not among executor.pools", t.Name, t.Pool))
		}
		names[t.Name] = true
	}
	for _, p := range o.Providers {
		if p.Name == "" || names[p.Name] {
			errs = append(errs, fmt.Errorf("executor.providers: name %q: want one that is used once", p.Name))
		}
		names[p.Name] = true
	}
	return errors.Join(errs...)
}

func poolOf(t tool.Spec) string { return cmp.Or(t.Pool, executor.DefaultPool) }
