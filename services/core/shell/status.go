package shell

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/internal/buildinfo"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/executor"
)

// Status returns the state of the system as this core sees it.
func (c *Core) Status(ctx context.Context) coreapi.Status {
	st := coreapi.Status{
		Instance: c.bus.Instance(), Version: c.cfg.Version, Open: c.sessions.Len(), Executors: c.dir.Executors(),
		Counters: c.Counters(),
		Missing:  c.dir.Missing(), Faults: c.faults(), Troubles: c.troubles.All(),
		View: c.refill.State(ctx), Guides: c.plugins.GuideTroubles(),
	}
	for _, name := range slices.Sorted(maps.Keys(c.cfg.Agents)) {
		st.Agents = append(st.Agents, name)
		if f := c.providerFault(name); f != nil {
			st.Faults = append(st.Faults, *f)
		}
	}
	return st
}

// Counters returns this core's counters since it started, and its gauges, by name.
func (c *Core) Counters() map[string]int64 {
	n := c.Stats()
	out := map[string]int64{
		"commits": n.Commits.Load(), "fence_lost": n.FenceLost.Load(),
		"deliveries": n.Deliveries.Load(), "redeliveries": n.Redeliveries.Load(), "panics": n.Panics.Load(),
		"poison": n.Poison.Load(), "snapshots": c.snapshots.Load(),
		"dead_letters": n.DeadLetters.Load(), "mismatches": n.Mismatches.Load(),
		"internal_calls": c.internalCalls.Load(), "open_sessions": int64(c.sessions.Len()),
		"sessions_loaded":  c.loader.Loads.Load(),
		"waiting_sessions": int64(c.sessions.Waiting()), "queued_sessions": int64(c.dir.Queued()),
		"limited_sessions": int64(c.sessions.Limited()),
	}
	if n := c.beacon.last.Load(); n >= 0 { // else it is unknown
		out["backlog"] = n
	}
	if u := c.beacon.use.Load(); u != nil {
		out["log_bytes"], out["log_max_bytes"] = int64(u.Bytes), int64(u.Most) //nolint:gosec // bytes of a stream
	}
	c.countSlots(out)
	retained := c.retain.Status()
	out["retention_sessions"], out["retention_bytes"] = retained.Sessions, retained.Bytes
	out["retention_archived"], out["retention_removed"] = retained.Archived, retained.Removed
	if c.traces != nil {
		out["traces_dropped"] = c.traces.Dropped.Load()
	}
	maps.Copy(out, c.outbox.Counters())
	maps.Copy(out, c.schedule.Counters())
	return out
}

// counted are the services whose slots are gauges, which is what a deployment scales by, each
// with the pool that its calls use.
var counted = map[string]string{
	"provider": executor.DefaultPool, "sandbox": "sandbox", "toolrunner": executor.DefaultPool,
}

// countSlots adds the slots of the executors that take work, and how many of them are in use or
// queued for, as last announced. Each core sees all executors.
func (c *Core) countSlots(out map[string]int64) {
	for service := range counted {
		out[service+"_slots"], out[service+"_slots_busy"] = 0, 0
	}
	for _, e := range c.dir.Executors() {
		for _, p := range e.Pools {
			if p.Name == counted[e.Service] && !e.Draining && !e.Gone {
				out[e.Service+"_slots"] += int64(p.Slots)
				out[e.Service+"_slots_busy"] += int64(p.Busy)
			}
		}
	}
}

// faults returns the problems outside of sessions, for operators.
func (c *Core) faults() (out []coreapi.Fault) {
	if f := c.bus.StorageFault(); f != nil {
		out = append(out, coreapi.Fault{What: coreapi.FaultBus, Message: f.Error(), Since: f.Since})
	}
	if f := c.store.Fault(); f != nil {
		out = append(out, *f)
	}
	if err := c.bus.Overload(); err != nil {
		out = append(out, coreapi.Fault{What: coreapi.FaultOverload, Message: err.Error()})
	}
	out = append(out, c.outboxFaults()...)
	out = append(out, c.auditFaults()...)
	for _, f := range []*coreapi.Fault{c.scheduleFault(), c.retentionFault()} {
		if f != nil {
			out = append(out, *f)
		}
	}
	return out
}

// outboxFaults returns the problems of messages to people.
func (c *Core) outboxFaults() (out []coreapi.Fault) {
	fault := func(since time.Time, n int, one, more, rest string) {
		words := more
		if n == 1 {
			words = one
		}
		out = append(out, coreapi.Fault{
			What: coreapi.FaultOutbox, Since: since, Message: fmt.Sprintf("%d %s %s", n, words, rest),
		})
	}
	look := func(more string) string {
		return fmt.Sprintf("look at System on the page, or `%s outbox list%s`", buildinfo.Command(), more)
	}
	if n, since := c.outbox.Dead(); n > 0 {
		fault(since, n, "message to people was", "messages to people were", "given up; "+look(" --dead"))
	}
	for _, w := range c.outbox.Absent() {
		why := "which is not running; start it, or drop them: "
		if w.Full {
			why = "and no more are kept: others are given up at once; see why it does not deliver, or drop some: "
		}
		fault(w.Since, w.Messages, "message waits", "messages wait", "for the listener "+string(w.Via)+", "+why+look(""))
	}
	return out
}

// providerGrace is how long providers have to announce themselves before status names
// a missing one.
const providerGrace = 3 * time.Second

// providerFault returns the fault of an agent whose provider no service offers, or nil.
func (c *Core) providerFault(name subject.Agent) *coreapi.Fault {
	var gone time.Duration
	wanted := (&decide.State{}).Providers(c.cfg.Agents[name], nil)
	for i, provider := range wanted {
		if d := c.dir.WithoutProvider(provider); i == 0 || d < gone {
			gone = d
		}
	}
	if gone < providerGrace {
		return nil
	}
	which, fix := "no provider", "start one (skandha-provider, or a plugin that is one)"
	if wanted[0] != "" {
		which, fix = fmt.Sprintf("no provider %q", strings.Join(wanted, ", ")),
			fmt.Sprintf("start it, or correct agents.%s.provider", name)
	}
	return &coreapi.Fault{
		What: coreapi.FaultProvider, Agent: name, Since: time.Now().Add(-gone).UTC(),
		Message: fmt.Sprintf("agent %s has %s: its turns wait, then fail with no_provider; %s", name, which, fix),
	}
}
