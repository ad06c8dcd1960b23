package event

import (
	"encoding/json"
	"time"

	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
)

// Disposition is what became of a perceived input.
type Disposition string

// The dispositions.
const (
	Started     Disposition = "started"    // its turn begins in this commit
	Queued      Disposition = "queued"     // it waits for the running turn
	FromQueue   Disposition = "from_queue" // it had waited; its turn begins in this commit
	EndedAtOnce Disposition = "ended"      // its terminal event is in this commit
)

// Perceived says that an input (or command) was taken up.
type Perceived struct {
	Sequence    uint64         `json:"sequence"` // of the cause: what the sender was acknowledged
	InputID     string         `json:"input_id,omitempty"`
	Writer      subject.Writer `json:"writer"`
	Source      string         `json:"source,omitempty"`
	Text        string         `json:"text,omitempty"`
	Annotations []string       `json:"annotations,omitempty"` // by after_sense hooks
	Disposition Disposition    `json:"disposition"`
	Deadline    time.Time      `json:"deadline,omitzero"` // of the turn, when it begins
}

// PlanRequested says that the model is asked. History is not carried: it is the
// fold up to the commit before, whose chain is named here.
type PlanRequested struct {
	Plan     string           `json:"plan"` // <turn>-p<round>
	Round    int              `json:"round"`
	Attempt  string           `json:"attempt"`
	Attempts int              `json:"attempts"` // counts from 1
	Provider subject.Instance `json:"provider"`
	NotAfter time.Time        `json:"not_after"`
	StartBy  time.Time        `json:"start_by"`
	Chain    string           `json:"chain"`            // digest of the history it sees
	Tools    []string         `json:"tools"`            // offered; no other can be called
	System   string           `json:"system,omitempty"` // set only when a hook changed it
	Notes    []string         `json:"notes,omitempty"`  // advice of hooks and of the core, for this call
	Spent    provider.Usage   `json:"spent,omitzero"`   // by the attempt before, whose answer was of no use
}

// PlanCompleted is the model's answer, or its failure.
type PlanCompleted struct {
	Plan       string             `json:"plan"`
	Attempt    string             `json:"attempt"`
	Provider   subject.Instance   `json:"provider,omitempty"`
	Response   *provider.Response `json:"response,omitempty"`
	Error      *provider.Error    `json:"error,omitempty"`
	Spent      provider.Usage     `json:"spent,omitzero"`  // with Error: what the answer of no use cost
	Steps      []Step             `json:"steps,omitempty"` // what the calls became
	DurationMS int64              `json:"duration_ms,omitempty"`
}

// Step is one tool call of the turn's execution plan.
type Step struct {
	Call          string          `json:"call"`             // <plan>-c<index>, or <call>-s<index> within plan:execute
	CallID        string          `json:"call_id"`          // the model's own id of the call (or of the plan's step)
	Parent        string          `json:"parent,omitempty"` // the plan:execute call that it is a step of
	Tool          string          `json:"tool"`
	Args          json.RawMessage `json:"args"`                 // before references are resolved
	DependsOn     []string        `json:"depends_on,omitempty"` // calls
	Idempotent    bool            `json:"idempotent,omitempty"`
	StopOnFailure bool            `json:"stop_on_failure,omitempty"` // a plan:execute call: the first failure skips the rest
}

// ActRequested gives one step to one executor.
type ActRequested struct {
	Call       string           `json:"call"`
	Tool       string           `json:"tool"`
	Args       json.RawMessage  `json:"args"`           // exactly what will run
	Hash       string           `json:"hash"`           // of the tool's name, owner and spec, and of args: what an approval is bound to
	Spec       string           `json:"spec,omitempty"` // the digest of the tool's spec; its runner refuses another
	Attempt    string           `json:"attempt"`
	Attempts   int              `json:"attempts"` // counts from 1
	Runner     subject.Instance `json:"runner"`
	StartBy    time.Time        `json:"start_by"`
	NotAfter   time.Time        `json:"not_after"`
	Idempotent bool             `json:"idempotent,omitempty"`
	Uncertain  bool             `json:"uncertain,omitempty"` // an attempt before may have run; only ever of idempotent tools
	ApprovedBy subject.Writer   `json:"approved_by,omitempty"`
	// Sticky is the pool of a sticky tool: from now on the session's sticky calls of
	// the pool go to this runner.
	Sticky string `json:"sticky,omitempty"`
}

// ConfirmOutcome is how a confirmation request ended.
type ConfirmOutcome string

// The outcomes.
const (
	Approved ConfirmOutcome = "approved"
	Denied   ConfirmOutcome = "denied"
	Expired  ConfirmOutcome = "expired" // which means denied
)

// ActConfirmed says how a person, or the clock, answered a confirmation request.
type ActConfirmed struct {
	Call    string         `json:"call"` // the confirmation id
	Hash    string         `json:"hash"`
	Outcome ConfirmOutcome `json:"outcome"`
	By      subject.Writer `json:"by"`
	Reason  string         `json:"reason,omitempty"`
	Source  string         `json:"source,omitempty"` // the UI that it was answered in, as the answer says
	Always  *Grant         `json:"always,omitempty"` // with Approved: what is approved from now on, too
}

// Grant approves, in its session until /reset, calls of one tool whose arguments
// match: "always for this session". It stands for what policy would ask a person
// about, never for what policy denies or a hook asks about.
type Grant struct {
	Tool string `json:"tool"`
	// Args has a pattern for arguments by name. A pattern is the value itself, or it
	// ends in "/*": everything below, of a clean path or of a URL of that origin.
	Args map[string]string `json:"args,omitempty"`
	// Hash is the call's when nothing but this exact call is granted; then Args is empty.
	Hash string `json:"hash,omitempty"`
	// Spec is the digest of the tool's spec. A tool with another owner or spec is not granted.
	Spec string `json:"spec,omitempty"`
}

// Effect is what the security layer says.
type Effect string

// The effects.
const (
	EffectAllow   Effect = "allow"
	EffectDeny    Effect = "deny"
	EffectConfirm Effect = "confirm" // a person is asked
)

// The actions that are audited.
const (
	ActionCall         = "tool.call"    // a call is about to be given to a runner
	ActionConfirmation = "confirmation" // an answer to a confirmation request was refused
)

// Obligations bind a call that is allowed.
type Obligations struct {
	MaxDurationMS  int64  `json:"max_duration_ms,omitempty"`  // from its being given to a runner until its end
	MaxResultBytes int    `json:"max_result_bytes,omitempty"` // of its result, as JSON; a larger one is withheld
	Note           string `json:"note,omitempty"`             // told to the model beside the result
}

// Audited is a decision of the security layer: about a call, or about an answer to a
// confirmation request, which is refused if it does not fit.
type Audited struct {
	Principal   subject.Writer `json:"principal"`
	Action      string         `json:"action"`             // tool.call or confirmation
	Resource    string         `json:"resource,omitempty"` // the tool
	Call        string         `json:"call,omitempty"`     // as an answer named it, with the action confirmation
	Hash        string         `json:"hash,omitempty"`     // of tool and arguments; as an answer gave it, likewise
	Effect      Effect         `json:"effect"`
	Reason      string         `json:"reason,omitempty"`
	Rule        string         `json:"rule,omitempty"`        // what decided: "policy[3]", "risk", "permission", "default", "grant", "before_act", "breaker"
	Grant       *Grant         `json:"grant,omitempty"`       // with the rule "grant"
	Obligations *Obligations   `json:"obligations,omitempty"` // unless it is denied
}

// ActCompleted is a step's one result.
type ActCompleted struct {
	Call       string           `json:"call"`
	Tool       string           `json:"tool"`
	Hash       string           `json:"hash,omitempty"`
	Result     tool.Result      `json:"result"`
	Attempt    string           `json:"attempt,omitempty"` // empty if it was never assigned
	Runner     subject.Instance `json:"runner,omitempty"`
	DurationMS int64            `json:"duration_ms,omitempty"`
	Note       string           `json:"note,omitempty"` // what core tells the model beside the result
	// Fault says whose failure it is. A failure without a fault never counts towards
	// the circuit breaker.
	Fault Fault `json:"fault,omitempty"`
}

// Fault says whose failure an unsuccessful call is.
type Fault string

// FaultTool is a failure that the tool itself reported.
const FaultTool Fault = "tool"

// Recorded is the terminal event of a turn that went through: the experience.
type Recorded struct {
	Sequence   uint64         `json:"sequence"` // the input's
	InputID    string         `json:"input_id,omitempty"`
	Input      string         `json:"input,omitempty"`
	Answer     string         `json:"answer,omitempty"`
	Actions    []Action       `json:"actions,omitempty"`
	Rounds     int            `json:"rounds"`
	Usage      provider.Usage `json:"usage"`
	Notes      []string       `json:"notes,omitempty"`   // by before_reflect hooks
	Command    string         `json:"command,omitempty"` // when it was a slash command
	DurationMS int64          `json:"duration_ms"`
}

// Action is a step in an experience.
type Action struct {
	Call    string    `json:"call"`
	Tool    string    `json:"tool"`
	Success bool      `json:"success"`
	Code    tool.Code `json:"code,omitempty"` // without success
}

// FailCode is the closed set of reasons why an input ended without an answer.
type FailCode string

// The codes.
const (
	FailMalformed      FailCode = "malformed"       // the cause could not be read
	FailUnknownAgent   FailCode = "unknown_agent"   //
	FailUnknownCause   FailCode = "unknown_cause"   // a kind of cause that nobody knows
	FailUnknownCommand FailCode = "unknown_command" //
	FailDuplicate      FailCode = "duplicate_of"    // an input with this id was taken before
	FailDropped        FailCode = "dropped"         // by a hook
	FailDenied         FailCode = "denied"          // by a hook, before anything ran
	FailLocked         FailCode = "session_locked"  // until the time given with it, or until /reset
	FailCancelled      FailCode = "cancelled"       //
	FailInterrupted    FailCode = "interrupted"     // by a later input
	FailReset          FailCode = "reset"           // by /reset
	FailQueueFull      FailCode = "queue_full"      //
	FailPoison         FailCode = "poison"          // handling it failed again and again
	FailProvider       FailCode = "provider_failed" // no attempt gave an answer
	FailNoProvider     FailCode = "no_provider"     // none was there
	FailNoGuide        FailCode = "no_guide"        // a guide without which the agent does not answer
	FailLimitRounds    FailCode = "limit_rounds"    //
	FailLimitTokens    FailCode = "limit_tokens"    //
	FailLimitCost      FailCode = "limit_cost"      //
	FailDeadline       FailCode = "deadline"        // the turn's wall time is over
	FailBreaker        FailCode = "circuit_open"    // too many failures of tools
	FailStateMismatch  FailCode = "state_mismatch"  // the fold contradicts the log's digest
)

// FailCodes lists the closed set.
func FailCodes() []FailCode {
	return []FailCode{
		FailMalformed, FailUnknownAgent, FailUnknownCause, FailUnknownCommand, FailDuplicate, FailDropped,
		FailDenied, FailLocked, FailCancelled, FailInterrupted, FailReset, FailQueueFull, FailPoison,
		FailProvider, FailNoProvider, FailNoGuide, FailLimitRounds, FailLimitTokens, FailLimitCost, FailDeadline,
		FailBreaker, FailStateMismatch,
	}
}

// TurnFailed is the terminal event of an input that ended without an answer.
type TurnFailed struct {
	Sequence   uint64         `json:"sequence"`
	InputID    string         `json:"input_id,omitempty"`
	Code       FailCode       `json:"code"`
	Reason     string         `json:"reason"`
	Until      time.Time      `json:"until,omitzero"` // locked for a time: when it accepts inputs again
	Actions    []Action       `json:"actions,omitempty"`
	Usage      provider.Usage `json:"usage,omitzero"`
	DurationMS int64          `json:"duration_ms,omitempty"`
}

// SessionLocked says that the session accepts no inputs: the circuit breaker opened,
// or its log is damaged. In the second case /repair opens it, too.
type SessionLocked struct {
	Reason string `json:"reason"`
	// Until is when it accepts inputs again, to try one tool call; absent if only
	// /reset opens it.
	Until time.Time `json:"until,omitzero"`
}

// SessionReset says that the conversation was cleared.
type SessionReset struct {
	By subject.Writer `json:"by"`
}

// Checkpoint carries a session's whole state: folding may begin here.
type Checkpoint struct {
	State  json.RawMessage `json:"state"` // as of the fold's version; for core alone
	Reason string          `json:"reason"`
}

// Format is how a message's content is to be read.
type Format string

// The formats.
const (
	Markdown Format = "markdown"
	Text     Format = "text"
)

// UIMessage is onNewMessage: text for the person.
type UIMessage struct {
	Content string `json:"content"`
	Format  Format `json:"format"`
}

// ToolCallRequest is onToolCallRequest: a person is asked. The answer must carry
// the confirmation id and the hash.
type ToolCallRequest struct {
	ToolName        string          `json:"tool_name"`
	Args            json.RawMessage `json:"args"`
	ConfirmationID  string          `json:"confirmation_id"` // the call's id
	Hash            string          `json:"hash"`
	ExpiresAt       time.Time       `json:"expires_at"` // no answer until then means denied
	SecurityWarning *hook.Warning   `json:"security_warning,omitempty"`
	Always          []Grant         `json:"always,omitempty"` // an approval may choose one of them
	// Owner is the plugin that runs the tool; empty for a built-in one.
	Owner string `json:"owner,omitempty"`
	// Answer is what a plugin answers instead of the tool, which does not run: an approval
	// lets the answer count.
	Answer *Answered `json:"answer,omitempty"`
}

// Answered is the answer of a before_act hook instead of the tool.
type Answered struct {
	By   subject.Plugin  `json:"by"`
	Data json.RawMessage `json:"data,omitempty"` // as the tool's would be
}

// UIReady is onReadyForInput.
type UIReady struct{}

// UIState is onAgentStateChange.
type UIState struct {
	State AgentState `json:"state"`
}

// AgentState is what the agent is doing, for people.
type AgentState string

// The states.
const (
	StateWaiting    AgentState = "waiting_for_input"
	StateSensing    AgentState = "sensing"
	StateThinking   AgentState = "thinking"
	StateConfirming AgentState = "awaiting_confirmation"
	StateExecuting  AgentState = "executing_tool"
	StateReflecting AgentState = "reflecting"
	StateLocked     AgentState = "locked"
)

// EventType implements Payload.
func (Perceived) EventType() Type { return TypePerceived }

// EventType implements Payload.
func (PlanRequested) EventType() Type { return TypePlanRequested }

// EventType implements Payload.
func (PlanCompleted) EventType() Type { return TypePlanCompleted }

// EventType implements Payload.
func (ActRequested) EventType() Type { return TypeActRequested }

// EventType implements Payload.
func (ActConfirmed) EventType() Type { return TypeActConfirmed }

// EventType implements Payload.
func (Audited) EventType() Type { return TypeAudited }

// EventType implements Payload.
func (ActCompleted) EventType() Type { return TypeActCompleted }

// EventType implements Payload.
func (Recorded) EventType() Type { return TypeRecorded }

// EventType implements Payload.
func (TurnFailed) EventType() Type { return TypeTurnFailed }

// EventType implements Payload.
func (SessionLocked) EventType() Type { return TypeSessionLocked }

// EventType implements Payload.
func (SessionReset) EventType() Type { return TypeSessionReset }

// EventType implements Payload.
func (Checkpoint) EventType() Type { return TypeCheckpoint }

// EventType implements Payload.
func (UIMessage) EventType() Type { return TypeUIMessage }

// EventType implements Payload.
func (ToolCallRequest) EventType() Type { return TypeToolCallRequest }

// EventType implements Payload.
func (UIReady) EventType() Type { return TypeUIReady }

// EventType implements Payload.
func (UIState) EventType() Type { return TypeUIState }
