package inspect

import (
	"encoding/json"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
)

// Lane is the part of the loop that a span belongs to.
type Lane string

// The lanes.
const (
	LaneSense   Lane = "sense"   // an input is taken up, or waits for its turn
	LanePlan    Lane = "plan"    // the model is asked
	LaneAct     Lane = "act"     // a tool runs, or waits for what it needs
	LaneReflect Lane = "reflect" // the turn ends
	LaneHook    Lane = "hook"    // a plugin is asked
	LaneConfirm Lane = "confirm" // policy decides, a person is asked
)

// Kind is what a span stands for.
type Kind string

// The kinds.
const (
	KindSense   Kind = "sense"
	KindQueue   Kind = "queue"   // behind the turn before
	KindPlan    Kind = "plan"    // one round: from the question to the answer, all attempts
	KindAttempt Kind = "attempt" // at a model call, when there is more than one
	KindStep    Kind = "step"    // a tool call, from when the model wanted it to its one result
	KindWait    Kind = "wait"    // of a step, for steps that it depends on or for a runner
	KindConfirm Kind = "confirm" // of a step, for a person
	KindRun     Kind = "run"     // one attempt of a runner
	KindHook    Kind = "hook"    // one verdict of a plugin
	KindPolicy  Kind = "policy"  // a mark: what the security layer decided
	KindReflect Kind = "reflect"
	KindEnd     Kind = "end" // a mark: the turn's terminal event
)

// Status is how a span ended.
type Status string

// The statuses.
const (
	StatusOK        Status = "ok"
	StatusFailed    Status = "failed"
	StatusDenied    Status = "denied"    // by a hook, policy, a person, or nobody in time
	StatusAsked     Status = "asked"     // a hook or policy wanted a person to decide
	StatusCancelled Status = "cancelled" // it did not run, or did not end
	StatusSkipped   Status = "skipped"   // a step that it depends on failed
	StatusUnknown   Status = "unknown"   // nobody can know whether it ran
	StatusOpen      Status = "open"      // it goes on
)

// Timeline is one turn as a waterfall.
type Timeline struct {
	Agent      subject.Agent   `json:"agent"`
	Session    subject.Session `json:"session"`
	Turn       string          `json:"turn"`     // t<sequence>
	Sequence   uint64          `json:"sequence"` // of the input
	Text       string          `json:"text,omitempty"`
	Writer     subject.Writer  `json:"writer,omitempty"`
	Source     string          `json:"source,omitempty"`
	Outcome    string          `json:"outcome"`          // as in TurnRow
	Reason     string          `json:"reason,omitempty"` // why it failed
	Started    time.Time       `json:"started"`          // when the input was stored
	DurationMS int64           `json:"duration_ms"`      // until its end or, while it goes on, until now
	Spans      []Span          `json:"spans"`            // parents before their children, both by their start
	Cut        []string        `json:"cut,omitempty"`    // what is not here, in words
}

// Span is a stretch of time, or, with a duration of 0, a mark. Times are in
// microseconds since the timeline's start. Those of the log have milliseconds; a
// plugin's latency, which has microseconds, is placed between them in the order in
// which plugins were asked.
type Span struct {
	ID         string `json:"id"`
	Parent     string `json:"parent,omitempty"`
	Lane       Lane   `json:"lane"`
	Kind       Kind   `json:"kind"`
	Name       string `json:"name"`
	StartUS    int64  `json:"start_us"`
	DurationUS int64  `json:"duration_us"`
	Status     Status `json:"status"`
	Detail     Detail `json:"detail"`
}

// Detail is what a span has to say beside its times; which fields there are depends
// on its kind.
type Detail struct {
	Commit     uint64           `json:"commit,omitempty"` // the log's sequence of what began it, or of the mark
	Ended      uint64           `json:"ended,omitempty"`  // and of what ended it
	Plan       string           `json:"plan,omitempty"`
	Round      int              `json:"round,omitempty"`
	Attempt    string           `json:"attempt,omitempty"`
	Attempts   int              `json:"attempts,omitempty"` // counts from 1
	Provider   subject.Instance `json:"provider,omitempty"`
	Model      string           `json:"model,omitempty"`
	Usage      *provider.Usage  `json:"usage,omitempty"`
	Text       string           `json:"text,omitempty"`
	Offered    int              `json:"offered,omitempty"` // how many tools the model could call
	Calls      int              `json:"calls,omitempty"`
	Rounds     int              `json:"rounds,omitempty"`
	Notes      []string         `json:"notes,omitempty"`
	Call       string           `json:"call,omitempty"`
	Tool       string           `json:"tool,omitempty"`
	Args       json.RawMessage  `json:"args,omitempty"`
	Hash       string           `json:"hash,omitempty"` // of tool and arguments
	DependsOn  []string         `json:"depends_on,omitempty"`
	Runner     subject.Instance `json:"runner,omitempty"`
	Idempotent bool             `json:"idempotent,omitempty"`
	Uncertain  bool             `json:"uncertain,omitempty"` // an attempt before may have run
	ApprovedBy subject.Writer   `json:"approved_by,omitempty"`
	WorkedMS   int64            `json:"worked_ms,omitempty"` // as the executor measured it
	Code       string           `json:"code,omitempty"`      // of an error, or of the turn's end
	Error      string           `json:"error,omitempty"`
	Result     json.RawMessage  `json:"result,omitempty"` // its data
	Note       string           `json:"note,omitempty"`

	Point  hook.Point     `json:"point,omitempty"`
	Plugin subject.Plugin `json:"plugin,omitempty"`
	Verb   hook.Verb      `json:"verb,omitempty"`

	Effect      event.Effect         `json:"effect,omitempty"`
	Rule        string               `json:"rule,omitempty"`
	Principal   subject.Writer       `json:"principal,omitempty"`
	Action      string               `json:"action,omitempty"`
	Grant       *event.Grant         `json:"grant,omitempty"`
	Obligations *event.Obligations   `json:"obligations,omitempty"`
	Outcome     event.ConfirmOutcome `json:"outcome,omitempty"`
	By          subject.Writer       `json:"by,omitempty"`
	Source      string               `json:"source,omitempty"`
	ExpiresAt   time.Time            `json:"expires_at,omitzero"`
	Warning     *hook.Warning        `json:"warning,omitempty"`
	Reason      string               `json:"reason,omitempty"`

	Cut []string `json:"cut,omitempty"` // fields that are not whole
}

// Stored is a commit and what the log says of it.
type Stored struct {
	event.Commit
	Sequence uint64
	At       time.Time // when the log stored it, by the bus's clock; may be zero
}

// statusOf is how a call with this result ended.
func statusOf(r tool.Result) Status {
	if r.Success {
		return StatusOK
	}
	if r.Error == nil {
		return StatusFailed
	}
	switch r.Error.Code {
	case tool.CodeDenied, tool.CodeExpired:
		return StatusDenied
	case tool.CodeCancelled, tool.CodeNotRun:
		return StatusCancelled
	case tool.CodeSkipped:
		return StatusSkipped
	case tool.CodeOutcomeUnknown:
		return StatusUnknown
	}
	return StatusFailed
}

// endOf is how a turn with this code ended.
func endOf(c event.FailCode) Status {
	switch c {
	case event.FailDenied, event.FailDropped, event.FailLocked:
		return StatusDenied
	case event.FailCancelled, event.FailInterrupted, event.FailReset, event.FailDuplicate:
		return StatusCancelled
	}
	return StatusFailed
}
