// Package executor defines the protocol between core and its executors: tool runners,
// sandboxes and providers.
//
// An executor instance receives requests on runner.<instance> or provider.<instance>; its id
// is new at each start. It answers on the reply subject of the request: immediately, and at
// least every [Heartbeat] while the work runs, with state running, and then with a final
// state. It runs each (call, attempt) at most once, remembers the ids for its whole life,
// and keeps a result until core reports that it is committed or until its not_after has
// passed. If it is asked about an attempt that it never received, it keeps a tombstone, so
// that the answer "never" remains true.
package executor

import (
	"encoding/json"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
)

// The times of the protocol.
const (
	// Heartbeat is the interval at which a running attempt reports that it runs.
	Heartbeat = time.Second
	// AnnounceEvery is the interval at which an instance announces what it offers.
	AnnounceEvery = time.Second
	// AnnounceTTL is how long an announcement is valid.
	AnnounceTTL = 3500 * time.Millisecond
	// StartWithin is how long after its assignment an attempt may still start. Until then,
	// plus Skew, a call may still start on an executor that is taken for dead.
	StartWithin = 5 * time.Second
	// Skew is the maximum difference of two clocks.
	Skew = 2 * time.Second
)

// Op is the operation of a [Request].
type Op string

// The operations.
const (
	OpRun     Op = "run"     // start the attempt, or attach to it if it is known
	OpAsk     Op = "ask"     // return its state; if unknown, leave a tombstone
	OpStop    Op = "stop"    // stop it if it runs; if unknown, leave a tombstone
	OpRelease Op = "release" // its result is committed, or will never be; no answer
)

// Request is a request of core to an executor.
type Request struct {
	Op      Op              `json:"op"`
	Agent   subject.Agent   `json:"agent"`
	Session subject.Session `json:"session"`
	Call    string          `json:"call"`           // the call's or plan's id, unique in the log
	Attempt string          `json:"attempt"`        // nonce of this attempt
	Also    []Attempt       `json:"also,omitempty"` // with OpRelease: further attempts
	// The following fields are set only with OpRun.
	StartBy  time.Time         `json:"start_by,omitzero"`
	NotAfter time.Time         `json:"not_after,omitzero"`
	Tool     *ToolCall         `json:"tool,omitempty"`
	Model    *provider.Request `json:"model,omitempty"`
	Provider string            `json:"provider,omitempty"` // one of the instance's providers; empty: its first
	Silent   bool              `json:"silent,omitempty"`   // publish no deltas: the answer is not for the user
}

// Attempt identifies an attempt.
type Attempt struct {
	Call    string `json:"call"`
	Attempt string `json:"attempt"`
}

// ToolCall is a tool call for a runner.
type ToolCall struct {
	Name string          `json:"name"`
	Args json.RawMessage `json:"args"`
	Turn string          `json:"turn,omitempty"` // empty: an internal call outside of turns
	// Principal is the writer of the turn's input: an executor shares scarce resources among
	// principals.
	Principal subject.Writer `json:"principal,omitempty"`
	// Spec is the digest of the spec for which the call was allowed; see [tool.Spec.Digest].
	// A runner whose tool of that name has another digest refuses the call.
	Spec string `json:"spec,omitempty"`
	// Lease identifies, for a sticky tool, the state that its instance keeps for the session.
	// It stays the same until the session is reset.
	Lease string `json:"lease,omitempty"`
	// Before is the instance that ran the lease's latest call that has ended; empty if none
	// has.
	Before subject.Instance `json:"before,omitempty"`
	// Key names the call towards other systems; see [tool.Call].
	Key string `json:"key,omitempty"`
	// Probe asks what became of an earlier attempt, instead of running the tool.
	Probe *tool.Probe `json:"probe,omitempty"`
	// After lists the labels of the texts from outside that the call follows, at most [tool.MaxAfter]:
	// a tool that keeps a text keeps them with it, and returns them in [tool.MetadataAfter].
	After []string `json:"after,omitempty"`
	// Commission is what the call sends to another session, for core's own tools.
	Commission *event.Commission `json:"commission,omitempty"`
}

// State is the state of an attempt.
type State string

// The states an executor answers with.
const (
	Running  State = "running"  // it runs, or waits for a slot
	Finished State = "finished" // it ended, with a result
	Never    State = "never"    // it never ran here and never will
	Refused  State = "refused"  // the instance refused it: it never ran here and never will
	Stopped  State = "stopped"  // it had started and was stopped
	Unknown  State = "unknown"  // it ran, but the result is no longer available
)

// Final reports whether no further answer follows.
func (s State) Final() bool { return s != Running }

// RefusedReason is the closed set of reasons for a refusal.
type RefusedReason string

// The reasons.
const (
	RefusedFull     RefusedReason = "full"      // all slots are busy and the queue is full
	RefusedDraining RefusedReason = "draining"  // the instance is shutting down
	RefusedLate     RefusedReason = "late"      // start_by has passed
	RefusedUnknown  RefusedReason = "unknown"   // the tool or provider is unknown, or the plugin did not receive the call
	RefusedBad      RefusedReason = "malformed" // the request is invalid
)

// Answer is an executor's report on an attempt.
type Answer struct {
	Call       string             `json:"call"`
	Attempt    string             `json:"attempt"`
	Instance   subject.Instance   `json:"instance"`
	State      State              `json:"state"`
	Reason     RefusedReason      `json:"reason,omitempty"`      // with refused
	Message    string             `json:"message,omitempty"`     // for people
	Progress   string             `json:"progress,omitempty"`    // with running: the tool's progress
	DurationMS int64              `json:"duration_ms,omitempty"` // with finished and stopped
	Result     *tool.Result       `json:"result,omitempty"`      // with finished: a runner's
	Response   *provider.Response `json:"response,omitempty"`    // with finished: a provider's
	Error      *provider.Error    `json:"error,omitempty"`       // with finished: a provider's failure
	Spent      provider.Usage     `json:"spent,omitzero"`        // with error: what it cost all the same, at most
	Tasks      []event.TaskReport `json:"tasks,omitempty"`       // with finished: of core's own tools for agents
}

// Announcement lists what an instance offers. It is published on announce.<kind>.<instance>
// every [AnnounceEvery], at every change and in response to discovery.
type Announcement struct {
	Instance  subject.Instance     `json:"instance"`
	Kind      subject.ExecutorKind `json:"kind"`
	Service   string               `json:"service"` // "toolrunner", "sandbox", "provider", …
	Host      string               `json:"host,omitempty"`
	Started   time.Time            `json:"started"`
	Pools     []Pool               `json:"pools"`
	Tools     []tool.Spec          `json:"tools,omitempty"`
	Providers []provider.Info      `json:"providers,omitempty"` // in order of preference
	Project   *event.Project       `json:"project,omitempty"`   // of the workspace that the tools reach
	Draining  bool                 `json:"draining,omitempty"`  // accepts no new work
	Gone      bool                 `json:"gone,omitempty"`      // the instance has stopped; its last announcement
}

// Pool is a number of slots that calls share.
type Pool struct {
	Name  string `json:"name"`
	Slots int    `json:"slots"` // calls that can run at once
	Busy  int    `json:"busy"`  // calls that run or wait now
}

// MaxProject is the maximum length of the text of [Announcement.Project], in bytes.
const MaxProject = 32 << 10

// Built-in tools of which core knows what they do.
const (
	ReadFile  = "file_system:read_file"
	LoadSkill = "skills:load"
	ReadSkill = "skills:read"

	Delegate   = "agent:delegate"
	SendAgent  = "agent:send"
	WaitAgents = "agent:wait"
	StopAgent  = "agent:stop"
)

// OfAgents reports whether a tool is one of those with which agents work together.
func OfAgents(name string) bool {
	return name == Delegate || name == SendAgent || name == WaitAgents || name == StopAgent
}

// MetadataSkill is the key of the metadata of a result of skills:load that has an [event.Skill], if
// the skill limits the tools that may be called.
const MetadataSkill = "skill"

// DefaultPool is the pool of model calls and of tools that name no pool.
const DefaultPool = "default"
