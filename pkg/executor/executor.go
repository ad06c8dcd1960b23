// Package executor is the contract between core and what executes for it:
// tool runners, sandboxes and providers.
//
// An executor instance takes requests on runner.<instance> or
// provider.<instance>; its id is new at each start. It answers under the reply
// subject of the request: first, and at least every [Heartbeat] while the work
// runs, with state running, then with a final state. It runs one (call,
// attempt) at most once, remembers the ids for its whole life, and keeps a
// result until core says that it is committed or its not_after has passed.
// What it was asked about and never got leaves a tombstone, so that "never" is
// true for ever.
package executor

import (
	"encoding/json"
	"time"

	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
)

// The times of the protocol.
const (
	// Heartbeat is how often a running attempt says so.
	Heartbeat = time.Second
	// AnnounceEvery is how often an instance says what it offers.
	AnnounceEvery = time.Second
	// AnnounceTTL is how long an announcement is believed.
	AnnounceTTL = 3500 * time.Millisecond
	// StartWithin is how long after its assignment an attempt may still start. Until
	// then, plus Skew, a call at a dead executor may still begin.
	StartWithin = 5 * time.Second
	// Skew is how far two clocks may differ.
	Skew = 2 * time.Second
)

// Op is what core asks of an executor.
type Op string

// The operations.
const (
	OpRun     Op = "run"     // start the attempt, or attach to it if it is known
	OpAsk     Op = "ask"     // what became of it? not known: leaves a tombstone
	OpStop    Op = "stop"    // stop it if it runs; not known: leaves a tombstone
	OpRelease Op = "release" // its result is committed, or will never be; no answer
)

// Request is what core sends to an executor.
type Request struct {
	Op      Op              `json:"op"`
	Agent   subject.Agent   `json:"agent"`
	Session subject.Session `json:"session"`
	Call    string          `json:"call"`           // the call's or plan's id, unique in the log
	Attempt string          `json:"attempt"`        // nonce of this attempt
	Also    []Attempt       `json:"also,omitempty"` // with OpRelease: more of them
	// Below: with OpRun only.
	StartBy  time.Time         `json:"start_by,omitzero"`
	NotAfter time.Time         `json:"not_after,omitzero"`
	Tool     *ToolCall         `json:"tool,omitempty"`
	Model    *provider.Request `json:"model,omitempty"`
	Provider string            `json:"provider,omitempty"` // which of the instance's providers; empty: its first
}

// Attempt names one.
type Attempt struct {
	Call    string `json:"call"`
	Attempt string `json:"attempt"`
}

// ToolCall is the work of a runner.
type ToolCall struct {
	Name string          `json:"name"`
	Args json.RawMessage `json:"args"`
	Turn string          `json:"turn,omitempty"` // empty: an internal call outside of turns
	// Principal wrote the turn's input: an executor shares what is scarce among principals.
	Principal subject.Writer `json:"principal,omitempty"`
	// Spec is the digest of the spec that the call was let pass for; see [tool.Spec.Digest].
	// A runner whose tool of that name has another one refuses the call.
	Spec string `json:"spec,omitempty"`
	// Lease names, for a sticky tool, what its instance keeps for the session: it is
	// the same until the session is reset.
	Lease string `json:"lease,omitempty"`
	// Before is the instance that ran the last call of the lease that has ended;
	// empty: none has.
	Before subject.Instance `json:"before,omitempty"`
}

// State is what became of an attempt.
type State string

// The states an executor answers with.
const (
	Running  State = "running"  // it runs, or waits for a slot
	Finished State = "finished" // with its result
	Never    State = "never"    // it never ran here and never will
	Refused  State = "refused"  // the instance would not take it: never ran and never will
	Stopped  State = "stopped"  // it had begun and was stopped
	Unknown  State = "unknown"  // it ran, the result is gone
)

// Final reports whether nothing further follows.
func (s State) Final() bool { return s != Running }

// RefusedReason is the closed set of reasons for a refusal.
type RefusedReason string

// The reasons.
const (
	RefusedFull     RefusedReason = "full"      // no slot and no room to wait
	RefusedDraining RefusedReason = "draining"  // it is going away
	RefusedLate     RefusedReason = "late"      // start_by has passed
	RefusedUnknown  RefusedReason = "unknown"   // it does not offer this tool or provider, or the plugin that runs it did not get the call
	RefusedBad      RefusedReason = "malformed" // the request makes no sense
)

// Answer is what an executor says of an attempt.
type Answer struct {
	Call       string             `json:"call"`
	Attempt    string             `json:"attempt"`
	Instance   subject.Instance   `json:"instance"`
	State      State              `json:"state"`
	Reason     RefusedReason      `json:"reason,omitempty"`      // with refused
	Message    string             `json:"message,omitempty"`     // for people
	Progress   string             `json:"progress,omitempty"`    // with running: what the tool says of its progress
	DurationMS int64              `json:"duration_ms,omitempty"` // with finished and stopped
	Result     *tool.Result       `json:"result,omitempty"`      // with finished: a runner's
	Response   *provider.Response `json:"response,omitempty"`    // with finished: a provider's
	Error      *provider.Error    `json:"error,omitempty"`       // with finished: a provider's failure
}

// Announcement is what an instance offers. It is sent every [AnnounceEvery], at
// every change and when discovery asks, on announce.<kind>.<instance>.
type Announcement struct {
	Instance  subject.Instance     `json:"instance"`
	Kind      subject.ExecutorKind `json:"kind"`
	Service   string               `json:"service"` // "toolrunner", "sandbox", "provider", …
	Host      string               `json:"host,omitempty"`
	Started   time.Time            `json:"started"`
	Pools     []Pool               `json:"pools"`
	Tools     []tool.Spec          `json:"tools,omitempty"`
	Providers []provider.Info      `json:"providers,omitempty"` // in order of preference
	Draining  bool                 `json:"draining,omitempty"`  // takes no new work
	Gone      bool                 `json:"gone,omitempty"`      // the last one
}

// Pool is a number of slots that calls compete for.
type Pool struct {
	Name  string `json:"name"`
	Slots int    `json:"slots"` // that can run at once
	Busy  int    `json:"busy"`  // that run or wait now
}

// DefaultPool is the pool of tools that name none, and of model calls.
const DefaultPool = "default"
