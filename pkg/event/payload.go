package event

import (
	"encoding/json"
	"time"

	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/memory"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
)

// Disposition is what happened to a perceived input.
type Disposition string

// The dispositions.
const (
	Started     Disposition = "started"    // its turn begins in this commit
	Queued      Disposition = "queued"     // it waits for the running turn
	FromQueue   Disposition = "from_queue" // it was queued; its turn begins in this commit
	EndedAtOnce Disposition = "ended"      // its terminal event is in this commit
	Joined      Disposition = "joined"     // it was queued, and is part of the running turn from now on
)

// Perceived reports that core has started to process an input or command, or has queued it.
type Perceived struct {
	Sequence    uint64          `json:"sequence"` // of the cause, as in the acknowledgement to the sender
	InputID     string          `json:"input_id,omitempty"`
	Writer      subject.Writer  `json:"writer"`
	Source      string          `json:"source,omitempty"`
	Text        string          `json:"text,omitempty"`
	Annotations []string        `json:"annotations,omitempty"` // by after_sense hooks
	Files       []provider.File `json:"files,omitempty"`       // as in the input
	Origin      Origin          `json:"origin,omitempty"`      // as in the input
	From        string          `json:"from,omitempty"`        // as in the input
	ReplyTo     string          `json:"reply_to,omitempty"`    // as in the input
	Outside     bool            `json:"outside,omitempty"`     // the writer is the listener of a plugin
	By          *FromAgent      `json:"by,omitempty"`          // as in the input
	Steer       bool            `json:"steer,omitempty"`       // with queued: it joins the running turn before its next step
	Disposition Disposition     `json:"disposition"`
	Deadline    time.Time       `json:"deadline,omitzero"` // of the turn, when it begins
}

// PlanRequested reports a request to the model. It does not carry the history, which is the
// fold up to the previous commit; Chain is its digest.
type PlanRequested struct {
	Plan     string           `json:"plan"` // <turn>-p<round>
	Round    int              `json:"round"`
	Attempt  string           `json:"attempt"`
	Attempts int              `json:"attempts"`          // counts from 1
	Refused  int              `json:"refused,omitempty"` // earlier attempts that a provider without a free slot refused
	Lost     int              `json:"lost,omitempty"`    // earlier attempts whose provider process failed, not the model
	Provider subject.Instance `json:"provider"`
	Use      string           `json:"use,omitempty"`    // name of the provider that the instance asks; empty: its first
	Model    string           `json:"model,omitempty"`  // empty: the provider's default
	Not      []string         `json:"not,omitempty"`    // providers that failed for good in earlier attempts
	Failed   string           `json:"failed,omitempty"` // why the previous attempt gave no answer
	NotAfter time.Time        `json:"not_after"`
	StartBy  time.Time        `json:"start_by"`
	Chain    string           `json:"chain"`            // digest of the history that the model sees
	Tools    []string         `json:"tools"`            // offered to the model; no other tool can be called
	System   string           `json:"system,omitempty"` // set only if a hook changed it
	Notes    []string         `json:"notes,omitempty"`  // advice of hooks and of core, for this request
	Spent    provider.Usage   `json:"spent,omitzero"`   // by the previous attempt, whose answer was not usable
	// Question is what core itself asks; absent: the model decides about the turn's next step.
	Question *Question `json:"question,omitempty"`
	// Project is what the model sees of the project from this turn on; absent: what it saw before.
	Project *Project `json:"project,omitempty"`
}

// Project is the notes of a project: the file AGENTS.md of the tool runner's workspace. The zero
// value means that there are none.
type Project struct {
	Path string `json:"path,omitempty"` // relative to the workspace
	Size int64  `json:"size,omitempty"` // of the whole file, in bytes
	Text string `json:"text,omitempty"` // the file, or its beginning
}

// Question is something that core asks the model for its own purposes. The conversation is not
// continued by it, and the model is offered no tools. Without an answer the turn goes on.
type Question struct {
	Purpose Purpose `json:"purpose"`
	System  string  `json:"system"` // the system prompt
	Text    string  `json:"text"`   // what the model is asked
	// Schema is a JSON Schema of the answer; absent: the answer is text.
	Schema json.RawMessage `json:"schema,omitempty"`
	// Until is the last turn of the conversation that the model is shown before Text, as a
	// transcript; absent: it is shown none.
	Until string `json:"until,omitempty"`
}

// Purpose is what core wants an answer for.
type Purpose string

// The purposes.
const (
	PurposeSummary  Purpose = "summary"  // to replace turns of the conversation
	PurposeDecision Purpose = "decision" // to choose tools and their arguments
)

// Recalled is what core has found in the agent's memory for the turn.
type Recalled struct {
	Plan     string       `json:"plan"` // the first that the model sees them in
	Memories []memory.Hit `json:"memories"`
	// Trouble is why less was found than there may be, such as an embedder that did not answer.
	Trouble string `json:"trouble,omitempty"`
}

// Summarized replaces turns of the conversation by a summary. The turns stay in the log.
type Summarized struct {
	Plan  string `json:"plan"`  // whose answer the summary is
	Text  string `json:"text"`  // of these turns and of the summary before, if there was one
	From  string `json:"from"`  // the first turn that it replaces
	Until string `json:"until"` // the last
	Turns int    `json:"turns"` // how many
	// After lists the labels of the texts from outside in what it replaces.
	After []string `json:"after,omitempty"`
}

// PlanCompleted is the model's answer, or its failure.
type PlanCompleted struct {
	Plan     string             `json:"plan"`
	Attempt  string             `json:"attempt"`
	Provider subject.Instance   `json:"provider,omitempty"`
	Response *provider.Response `json:"response,omitempty"`
	Error    *provider.Error    `json:"error,omitempty"`
	// Purpose is that of the question which was asked, if it was one: the answer is not for the user.
	Purpose    Purpose        `json:"purpose,omitempty"`
	Spent      provider.Usage `json:"spent,omitzero"`  // with Error: the cost of the unusable answer
	Steps      []Step         `json:"steps,omitempty"` // the steps that the calls were turned into
	DurationMS int64          `json:"duration_ms,omitempty"`
}

// Step is one tool call of the turn's execution plan.
type Step struct {
	Call       string          `json:"call"`             // <plan>-c<index>, or <call>-s<index> within plan:execute
	CallID     string          `json:"call_id"`          // the model's id of the call (or of the plan's step)
	Parent     string          `json:"parent,omitempty"` // the plan:execute call that it is a step of
	Tool       string          `json:"tool"`
	Args       json.RawMessage `json:"args"`                 // before references are resolved
	DependsOn  []string        `json:"depends_on,omitempty"` // calls
	Idempotent bool            `json:"idempotent,omitempty"`
	// a plan:execute call: the first failure skips the rest
	StopOnFailure bool `json:"stop_on_failure,omitempty"`
}

// ActRequested assigns one step to one executor.
type ActRequested struct {
	Call string          `json:"call"`
	Tool string          `json:"tool"`
	Args json.RawMessage `json:"args"` // exactly what will run
	// of the tool's name, owner and spec, and of args; an approval is bound to it
	Hash string `json:"hash"`
	// the digest of the tool's spec; a runner whose tool has another one refuses the call
	Spec       string           `json:"spec,omitempty"`
	Attempt    string           `json:"attempt"`
	Attempts   int              `json:"attempts"` // counts from 1
	Runner     subject.Instance `json:"runner"`
	StartBy    time.Time        `json:"start_by"`
	NotAfter   time.Time        `json:"not_after"`
	Idempotent bool             `json:"idempotent,omitempty"`
	Uncertain  bool             `json:"uncertain,omitempty"` // an earlier attempt may have run
	// Key names the call towards other systems; the same in all of its attempts.
	Key string `json:"key,omitempty"`
	// Probes means that the tool can find out what became of an attempt.
	Probes bool `json:"probes,omitempty"`
	// Probe is set if this attempt only finds out what became of earlier ones: when the last of
	// them has certainly ended.
	Probe      time.Time      `json:"probe,omitzero"`
	ApprovedBy subject.Writer `json:"approved_by,omitempty"`
	// Sticky is the pool of a sticky tool: from now on the session's sticky calls of
	// the pool go to this runner.
	Sticky string `json:"sticky,omitempty"`
	// Commission is what the call sends to another session, if it does.
	Commission *Commission `json:"commission,omitempty"`
}

// ConfirmOutcome is how a confirmation request ended.
type ConfirmOutcome string

// The outcomes.
const (
	Approved ConfirmOutcome = "approved"
	Denied   ConfirmOutcome = "denied"
	Expired  ConfirmOutcome = "expired" // counts as denied
)

// ActConfirmed reports that a person answered a confirmation request, or that it expired.
type ActConfirmed struct {
	Call    string         `json:"call"` // the confirmation id
	Hash    string         `json:"hash"`
	Outcome ConfirmOutcome `json:"outcome"`
	By      subject.Writer `json:"by"`
	Reason  string         `json:"reason,omitempty"`
	Source  string         `json:"source,omitempty"` // the UI in which the user answered, according to the answer
	From    string         `json:"from,omitempty"`   // the person who answered, as in the answer
	Always  *Grant         `json:"always,omitempty"` // with Approved: which later calls are approved as well
	// Person is who answered, by the name that the configuration gives them; empty if it names no such
	// person. Others lists who approved before them, and For is who delegated the approval to them.
	Person  string   `json:"person,omitempty"`
	Others  []string `json:"others,omitempty"`
	For     string   `json:"for,omitempty"`
	Passkey bool     `json:"passkey,omitempty"` // with Approved: the person used a passkey
}

// Effect is a decision of the security layer.
type Effect string

// The effects.
const (
	EffectAllow   Effect = "allow"
	EffectDeny    Effect = "deny"
	EffectConfirm Effect = "confirm" // a person must approve
)

// The actions that are audited.
const (
	ActionCall         = "tool.call"    // a call is about to be assigned to a runner
	ActionConfirmation = "confirmation" // an answer to a confirmation request was refused
)

// Obligations are conditions on an allowed call.
type Obligations struct {
	MaxDurationMS  int64  `json:"max_duration_ms,omitempty"`  // from its assignment to a runner until its end
	MaxResultBytes int    `json:"max_result_bytes,omitempty"` // of its result, as JSON; a larger one is withheld
	Note           string `json:"note,omitempty"`             // shown to the model beside the result
}

// Audited is a decision of the security layer about a call, or about an answer to a
// confirmation request, which is refused if it does not match the request.
type Audited struct {
	Principal subject.Writer `json:"principal"`
	From      string         `json:"from,omitempty"`     // the person, as in the input or answer
	Person    string         `json:"person,omitempty"`   // of a refused answer: as in [ActConfirmed]
	Action    string         `json:"action"`             // tool.call or confirmation
	Resource  string         `json:"resource,omitempty"` // the tool
	Call      string         `json:"call,omitempty"`     // for the action confirmation, as in the answer
	// of tool and arguments; for the action confirmation, as in the answer
	Hash   string `json:"hash,omitempty"`
	Effect Effect `json:"effect"`
	Reason string `json:"reason,omitempty"`
	// what decided: "policy[3]", "risk", "permission", "default", "grant", "before_act",
	// "breaker", "skill", "packages", "stranger"
	Rule        string       `json:"rule,omitempty"`
	Grant       *Grant       `json:"grant,omitempty"`       // with the rule "grant"
	Obligations *Obligations `json:"obligations,omitempty"` // unless it is denied
}

// ActCompleted is the result of a step. Each step has exactly one.
type ActCompleted struct {
	Call       string           `json:"call"`
	Tool       string           `json:"tool"`
	Hash       string           `json:"hash,omitempty"`
	Result     tool.Result      `json:"result"`
	Attempt    string           `json:"attempt,omitempty"` // empty if it was never assigned
	Runner     subject.Instance `json:"runner,omitempty"`
	DurationMS int64            `json:"duration_ms,omitempty"`
	Note       string           `json:"note,omitempty"` // shown to the model beside the result, by core
	// Fault is the party that caused the failure. A failure without a fault never counts
	// towards the circuit breaker.
	Fault Fault `json:"fault,omitempty"`
	// Skill is set if the call loaded a skill that limits the tools of the turn.
	Skill *Skill `json:"skill,omitempty"`
	// After lists the labels of the texts from outside that the result holds, beside that of the tool;
	// see [tool.MetadataAfter].
	After []string `json:"after,omitempty"`
	// Tasks is what became of the work of other sessions, as far as the call has found out.
	Tasks []TaskReport `json:"tasks,omitempty"`
}

// Skill is a loaded skill that limits the tools which the turn may call from now on.
type Skill struct {
	Name string `json:"name"`
	// AllowedTools are names, or beginnings of names that end in "*".
	AllowedTools []string `json:"allowed_tools"`
}

// Fault is the party that caused an unsuccessful call.
type Fault string

// FaultTool means that the tool itself reported the failure.
const FaultTool Fault = "tool"

// Recorded is the terminal event of a turn that ended well: the experience.
type Recorded struct {
	Sequence uint64         `json:"sequence"` // the input's
	InputID  string         `json:"input_id,omitempty"`
	Input    string         `json:"input,omitempty"`
	Answer   string         `json:"answer,omitempty"`
	Actions  []Action       `json:"actions,omitempty"`
	Rounds   int            `json:"rounds"`
	Usage    provider.Usage `json:"usage"`
	Notes    []string       `json:"notes,omitempty"`   // by before_reflect hooks
	Learned  *Learned       `json:"learned,omitempty"` // for the agent's memory, if it has one
	Command  string         `json:"command,omitempty"` // set if the input was a slash command
	// Provider is set if the command was /provider with a name: what the session uses from
	// now on, or "default" for the agent's own choice.
	Provider   string `json:"provider,omitempty"`
	DurationMS int64  `json:"duration_ms"`
	// Joined is set if the input has joined the running turn, whose id it is: that turn's end has the
	// answer.
	Joined string `json:"joined,omitempty"`
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
	FailUnknownCause   FailCode = "unknown_cause"   // an unknown kind of cause
	FailUnknownCommand FailCode = "unknown_command" //
	FailDuplicate      FailCode = "duplicate_of"    // an earlier input has the same id
	FailDropped        FailCode = "dropped"         // by a hook
	FailDenied         FailCode = "denied"          // by a hook, before anything ran
	FailLocked         FailCode = "session_locked"  // until Until, or until /reset
	FailCancelled      FailCode = "cancelled"       //
	FailInterrupted    FailCode = "interrupted"     // by a later input
	FailReset          FailCode = "reset"           // by /reset
	FailQueueFull      FailCode = "queue_full"      //
	FailPoison         FailCode = "poison"          // handling it failed repeatedly
	FailProvider       FailCode = "provider_failed" // no attempt produced an answer
	FailNoProvider     FailCode = "no_provider"     // no provider was available
	FailNoGuide        FailCode = "no_guide"        // a guide that the agent requires was not available
	FailLimitRounds    FailCode = "limit_rounds"    //
	FailLimitTokens    FailCode = "limit_tokens"    //
	FailLimitCost      FailCode = "limit_cost"      //
	FailDeadline       FailCode = "deadline"        // the turn's deadline has passed
	FailBreaker        FailCode = "circuit_open"    // too many tools failed
	FailStateMismatch  FailCode = "state_mismatch"  // the fold contradicts the log's digest
)

// TurnFailed is the terminal event of an input that ended without an answer.
type TurnFailed struct {
	Sequence   uint64         `json:"sequence"`
	InputID    string         `json:"input_id,omitempty"`
	Code       FailCode       `json:"code"`
	Reason     string         `json:"reason"`
	Until      time.Time      `json:"until,omitzero"` // with session_locked: when the session accepts inputs again
	Actions    []Action       `json:"actions,omitempty"`
	Usage      provider.Usage `json:"usage,omitzero"`
	DurationMS int64          `json:"duration_ms,omitempty"`
	Learned    *Learned       `json:"learned,omitempty"` // for the agent's memory, if it has one
	// Stops are the tasks of other sessions that are cancelled with the turn.
	Stops []Task `json:"stops,omitempty"`
}

// Learned is what a turn leaves for the agent's memory, beside what its terminal event says.
type Learned struct {
	Asked  string         `json:"asked"`            // the input
	Writer subject.Writer `json:"writer,omitempty"` // of the input
	// Origin is the least trusted text that the model has seen: the answer may follow from it.
	Origin  memory.Origin `json:"origin"`
	Lessons []Lesson      `json:"lessons,omitempty"` // at most 3
}

// Lesson is how a call that failed was corrected in the same turn.
type Lesson struct {
	Tool   string `json:"tool"`
	Failed string `json:"failed"` // the arguments and the error
	Worked string `json:"worked"` // the arguments of the call that succeeded
}

// Format is the format of a message's content.
type Format string

// The formats.
const (
	Markdown Format = "markdown"
	Text     Format = "text"
)

// UIMessage is onNewMessage: text for the user.
type UIMessage struct {
	Content string `json:"content"`
	Format  Format `json:"format"`
}

// ToolCallRequest is onToolCallRequest: it asks a person for approval. The answer must carry
// the confirmation id and the hash.
type ToolCallRequest struct {
	ToolName        string          `json:"tool_name"`
	Args            json.RawMessage `json:"args"`
	ConfirmationID  string          `json:"confirmation_id"` // the call's id
	Hash            string          `json:"hash"`
	ExpiresAt       time.Time       `json:"expires_at"` // without an answer until then, the call is denied
	SecurityWarning *hook.Warning   `json:"security_warning,omitempty"`
	Always          []Grant         `json:"always,omitempty"` // an approval may choose one of them
	// Owner is the plugin that runs the tool; empty for a built-in one.
	Owner string `json:"owner,omitempty"`
	// Approval is what the configuration demands of the answers; absent: one answer is enough.
	Approval *Approval `json:"approval,omitempty"`
	// Answer is a plugin's answer that replaces the tool, which does not run: an approval
	// makes the answer the result.
	Answer *Answered `json:"answer,omitempty"`
	// After is where the texts from outside come from that the model has seen before it proposed
	// the call, such as "email:alice@example.org" or "web"; at most 16.
	After []string `json:"after,omitempty"`
}

// Answered is the answer of a before_act hook, which replaces the tool's result.
type Answered struct {
	By   subject.Plugin  `json:"by"`
	Data json.RawMessage `json:"data,omitempty"` // like the data of the tool's result
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
	StatePaused     AgentState = "paused" // nothing runs, and nothing starts until /resume
)

// EventType implements Payload.
func (Perceived) EventType() Type { return TypePerceived }

// EventType implements Payload.
func (PlanRequested) EventType() Type { return TypePlanRequested }

// EventType implements Payload.
func (PlanCompleted) EventType() Type { return TypePlanCompleted }

// EventType implements Payload.
func (Recalled) EventType() Type { return TypeRecalled }

// EventType implements Payload.
func (Summarized) EventType() Type { return TypeSummarized }

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
func (SessionPaused) EventType() Type { return TypeSessionPaused }

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
