package timeline

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
	LanePlan    Lane = "plan"    // core asks the model
	LaneAct     Lane = "act"     // a tool runs, or waits for what it needs
	LaneReflect Lane = "reflect" // the turn ends
	LaneHook    Lane = "hook"    // core asks a plugin
	LaneConfirm Lane = "confirm" // policy decides, or a person is asked
)

// Kind is what a span represents.
type Kind string

// The kinds.
const (
	KindSense   Kind = "sense"
	KindQueue   Kind = "queue"   // waits for the previous turn
	KindPlan    Kind = "plan"    // one round: from request to answer, all attempts
	KindAttempt Kind = "attempt" // one attempt at a model call that has several
	KindStep    Kind = "step"    // a tool call, from the model's request to its one result
	KindWait    Kind = "wait"    // a step waits for steps that it depends on, or for a runner
	KindConfirm Kind = "confirm" // a step waits for a person
	KindRun     Kind = "run"     // one attempt of a runner
	KindHook    Kind = "hook"    // one verdict of a plugin
	KindPolicy  Kind = "policy"  // a mark: a decision of the security layer
	KindReflect Kind = "reflect"
	KindEnd     Kind = "end" // a mark: the turn's terminal event
)

// Status tells how a span ended.
type Status string

// The statuses.
const (
	StatusOK        Status = "ok"
	StatusFailed    Status = "failed"
	StatusDenied    Status = "denied"    // by a hook, policy or a person, or no answer in time
	StatusAsked     Status = "asked"     // a hook or policy asked for a person's decision
	StatusCancelled Status = "cancelled" // did not run, or did not finish
	StatusSkipped   Status = "skipped"   // a step that it depends on failed
	StatusUnknown   Status = "unknown"   // unknown whether it ran
	StatusOpen      Status = "open"      // still running
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
	DurationMS int64           `json:"duration_ms"`      // until its end or, if it is still running, until now
	Spans      []Span          `json:"spans"`            // parents before their children, siblings ordered by start
	Cut        []string        `json:"cut,omitempty"`    // what is left out, as text
}

// Span is a period of time, or, with a duration of 0, a mark. Times are in microseconds
// since the timeline's start. The log's times have milliseconds; a plugin's latency, which
// has microseconds, is placed between them in the order in which plugins were asked.
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

// Detail holds the properties of a span; its kind determines its fields.
type Detail struct {
	Commit   uint64           `json:"commit,omitempty"` // sequence of the commit that began it, or of the mark
	Ended    uint64           `json:"ended,omitempty"`  // that of the commit that ended it
	Plan     string           `json:"plan,omitempty"`
	Round    int              `json:"round,omitempty"`
	Attempt  string           `json:"attempt,omitempty"`
	Attempts int              `json:"attempts,omitempty"` // counts from 1
	Provider subject.Instance `json:"provider,omitempty"`
	Model    string           `json:"model,omitempty"`
	Usage    *provider.Usage  `json:"usage,omitempty"`
	Text     string           `json:"text,omitempty"`
	Offered  int              `json:"offered,omitempty"` // number of tools the model could call
	Calls    int              `json:"calls,omitempty"`
	// Considered is why the plan offers these tools, or calls them.
	Considered *event.PlanConsidered `json:"considered,omitempty"`
	Rounds     int                   `json:"rounds,omitempty"`
	Notes      []string              `json:"notes,omitempty"`
	Call       string                `json:"call,omitempty"`
	Tool       string                `json:"tool,omitempty"`
	Args       json.RawMessage       `json:"args,omitempty"`
	Hash       string                `json:"hash,omitempty"` // of tool and arguments
	DependsOn  []string              `json:"depends_on,omitempty"`
	Runner     subject.Instance      `json:"runner,omitempty"`
	Idempotent bool                  `json:"idempotent,omitempty"`
	Uncertain  bool                  `json:"uncertain,omitempty"` // an earlier attempt may have run
	ApprovedBy subject.Writer        `json:"approved_by,omitempty"`
	Works      *subject.Ref          `json:"works,omitempty"`     // the session that works on the task of the call
	WorkedMS   int64                 `json:"worked_ms,omitempty"` // measured by the executor
	Code       string                `json:"code,omitempty"`      // of an error, or of the turn's end
	Error      string                `json:"error,omitempty"`
	Result     json.RawMessage       `json:"result,omitempty"` // its data
	Note       string                `json:"note,omitempty"`

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

	Cut []string `json:"cut,omitempty"` // fields that were shortened
}

// statusOf returns how a call with this result ended.
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

// endOf returns how a turn with this code ended.
func endOf(c event.FailCode) Status {
	switch c {
	case event.FailDenied, event.FailDropped, event.FailLocked:
		return StatusDenied
	case event.FailCancelled, event.FailInterrupted, event.FailReset, event.FailDuplicate:
		return StatusCancelled
	}
	return StatusFailed
}
