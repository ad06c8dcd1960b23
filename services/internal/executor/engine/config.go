package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/bounds"
	"skandha.dev/services/internal/executor"
)

// The defaults and limits.
const (
	// defaultSlots is how many attempts the default pool runs at once.
	defaultSlots = 16
	// Grace is how long work may take to return after the end of its context before the
	// engine answers for it.
	Grace = 2 * time.Second
	// MaxWatchers is how many callers of one attempt get its answers.
	MaxWatchers = 8
	// maxProgress is the longest progress message, in bytes.
	maxProgress = 1 << 10

	// waitingPerSlot is how many attempts may wait, for each slot of a pool.
	waitingPerSlot = 4
	// quiet is how long an attempt may take before its callers get "running".
	quiet = 2 * time.Millisecond
	// maxKept bounds the results that wait for their release, in bytes. Beyond it,
	// new work is refused as full, because core is not committing.
	maxKept = 256 << 20
)

// Work executes one attempt. It runs in a separate goroutine.
//
// The context carries the caller's trace and ends at the attempt's deadline or
// when it is stopped; Work should return soon after. It may call progress at any
// time, from one goroutine or many. Of the answer, only Result, Response or Error
// are used, or that it is [DidNotRun]; the engine fills in the rest. A panic is
// answered as a failure.
type Work func(ctx context.Context, req executor.Request, progress func(string)) executor.Answer

// Offer lists the tools or providers of an instance.
type Offer struct {
	Tools     []tool.Spec     // of a runner; names are unique
	Providers []provider.Info // of a provider, in order of preference
	Project   *event.Project  // of a runner's workspace; nil: none
}

// Config configures an executor instance. Kind, Service, an offer and Work are required.
type Config struct {
	Kind    subject.ExecutorKind
	Service string // "toolrunner", "sandbox", "provider", …
	Offer
	// Updates, if it is not nil, delivers offers that replace the current one, for
	// example from [Offers]. An invalid offer is logged and ignored. Work that has
	// begun continues. Attempts that wait for a slot still reach Work, which must
	// check whether they are still offered.
	Updates <-chan Offer
	Work    Work

	// Pools are the slots that attempts compete for; Busy is ignored. The pool
	// "default" always exists, with 16 slots unless it is listed.
	Pools []executor.Pool
	// Waiting is how many attempts may wait per pool; default 4 for each slot,
	// negative: none.
	Waiting int
	// DrainTimeout bounds the wait for running work and for the release of its
	// results when the instance stops; default 30 s.
	DrainTimeout time.Duration `default:"30s" min:"0"`
	Host         string        // default: the machine's name
	Logger       *slog.Logger
}

func (c Config) withDefaults() Config {
	c.Pools = slices.Clone(c.Pools)
	if !slices.ContainsFunc(c.Pools, func(p executor.Pool) bool { return p.Name == executor.DefaultPool }) {
		c.Pools = append(c.Pools, executor.Pool{Name: executor.DefaultPool, Slots: defaultSlots})
	}
	c = bounds.Filled(c)
	if c.Host == "" {
		c.Host, _ = os.Hostname() // only displayed, so an empty name does no harm
	}
	c.Logger = cmp.Or(c.Logger, slog.Default())
	return c
}

// Validate reports every invalid field; each error names its field.
func (c Config) Validate() error {
	errs := []error{bounds.Check("executor.", c)}
	if c.Kind != subject.Runner && c.Kind != subject.Provider {
		errs = append(errs, fmt.Errorf("executor.kind is %q, want %q or %q", c.Kind, subject.Runner, subject.Provider))
	}
	if !subject.Valid(c.Service) {
		errs = append(errs, fmt.Errorf("executor.service: %q is not a valid id", c.Service))
	}
	if c.Work == nil {
		errs = append(errs, errors.New("executor.work is nil"))
	}
	pools := map[string]bool{executor.DefaultPool: true}
	seen := map[string]bool{}
	for _, p := range c.Pools {
		if p.Name == "" || p.Slots < 1 || seen[p.Name] {
			errs = append(errs,
				fmt.Errorf("executor.pools: %q with %d slots: want a unique name and 1 slot or more", p.Name, p.Slots))
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
			errs = append(errs,
				fmt.Errorf("executor.tools: name %q: want a unique name of 1 to %d bytes when encoded", t.Name, subject.MaxIDLen))
		}
		if !pools[poolOf(t)] {
			errs = append(errs,
				fmt.Errorf("executor.tools: %q requires pool %q, which is not in executor.pools", t.Name, t.Pool))
		}
		names[t.Name] = true
	}
	for _, p := range o.Providers {
		if p.Name == "" || names[p.Name] {
			errs = append(errs, fmt.Errorf("executor.providers: name %q: want a unique, non-empty name", p.Name))
		}
		names[p.Name] = true
	}
	return errors.Join(errs...)
}

func poolOf(t tool.Spec) string { return cmp.Or(t.Pool, executor.DefaultPool) }
