package decide

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/memory"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
)

// FoldVersion changes whenever the same commits would fold to another state. For
// snapshots of another version, the log is folded again.
const FoldVersion = 15

// Bounds of what a state keeps.
const (
	seenInputs     = 1024      // ids of inputs that are recognized when repeated
	windowEntries  = 256       // messages
	windowBytes    = 256 << 10 // of messages
	breakerHistory = 10        // outcomes that the breaker considers
	maxLeases      = 16        // pools of sticky tools; further ones are not sticky
)

// State is one session, folded from its commits. It is bounded: the conversation
// beyond the window is only in the log, and the state holds its hash chain.
type State struct {
	core
	// Rev is the stream sequence of the last commit, 0 before the first.
	Rev uint64 `json:"rev"`
	// Prev is the previous commit, which the digest covers. With it, a snapshot can be
	// verified even if its commit is lost.
	Prev uint64 `json:"prev,omitempty"`
	// Digest is the digest of the state that the last commit carries.
	Digest string `json:"digest"`
	// Window holds the latest messages, whole turns, oldest first. Chained to
	// WindowBase they result in Chain, so the digest covers them, too.
	Window     []Entry `json:"window,omitempty"`
	WindowBase string  `json:"window_base,omitempty"`
	// Seen holds the ids of the latest inputs, oldest first. Chained to SeenBase
	// they result in SeenChain.
	Seen     []SeenInput `json:"seen,omitempty"`
	SeenBase string      `json:"seen_base,omitempty"`
	// Grants lists what people have approved for the session, oldest first, until
	// /reset. Chained they result in GrantChain.
	Grants []event.Grant `json:"grants,omitempty"`
	// Project holds the notes that the model sees of the project. Its sum is ProjectSum.
	Project event.Project `json:"project,omitzero"`

	windowTail, seenTail *tail
	version              int // fold version of the commit that is being folded
}

// core holds the fields that the digest covers.
type core struct {
	Ref        subject.Ref      `json:"ref"`
	Cursor     uint64           `json:"cursor"`
	Driver     uint64           `json:"driver"`
	Delivery   uint64           `json:"delivery"`
	Now        time.Time        `json:"now"`
	Commits    uint64           `json:"commits"`
	Turn       *Turn            `json:"turn,omitempty"`
	Queue      []Pending        `json:"queue,omitempty"`
	Locked     string           `json:"locked,omitempty"` // the reason
	Breaker    Breaker          `json:"breaker"`
	UI         event.AgentState `json:"ui"`
	Title      string           `json:"title,omitempty"`
	Turns      int              `json:"turns"`
	Failed     int              `json:"failed"`
	Usage      provider.Usage   `json:"usage"`
	Provider   string           `json:"provider,omitempty"` // chosen by /provider; empty: as the agent says
	Leases     map[string]Lease `json:"leases,omitempty"`   // of sticky tools, by pool
	Chain      string           `json:"chain"`
	SeenChain  string           `json:"seen_chain"`
	GrantChain string           `json:"grant_chain,omitempty"`
	ProjectSum string           `json:"project_sum,omitempty"`
	Damage     *Damage          `json:"damage,omitempty"` // why the session is locked, if its log is damaged
	Deleted    *Deleted         `json:"deleted,omitempty"`
	Paused     *Paused          `json:"paused,omitempty"`
	Begun      *Begun           `json:"begun,omitempty"`  // of the cause that is to be decided next
	Driven     *Begun           `json:"driven,omitempty"` // of the open turn, by its driver
	// Summary replaces the turns before the window, if the agent's policy is to summarise.
	Summary *Summary `json:"summary,omitempty"`
	// Recalled is the least trusted origin of the memories that the model has been shown since
	// the last /reset: later answers may repeat them.
	Recalled memory.Origin `json:"recalled,omitempty"`
	// Above is the session that this one works for, in the Terms; nil: none.
	Above    *subject.Ref `json:"above,omitempty"`
	Terms    *event.Terms `json:"terms,omitempty"`
	Children []Child      `json:"children,omitempty"` // that work for this one, the oldest first
}

// Deleted is set in a session that somebody has deleted, which is locked.
type Deleted struct {
	event.Deletion
	Gone bool `json:"gone,omitempty"` // its content was removed
}

// Summary is a model's summary of the oldest turns of a conversation.
type Summary struct {
	Text  string `json:"text"`
	Until string `json:"until"` // the last turn that it replaces
	Turns int    `json:"turns"` // how many, in all
	// After lists the labels of the texts from outside in what it replaces.
	After []string `json:"after,omitempty"`
}

// Begun holds the marks of cores that have begun to decide about a cause, or about the turn
// that it drives, and are not done (rule 13).
type Begun struct {
	Sequence uint64             `json:"sequence"`
	Times    int                `json:"times,omitempty"` // of fold version 11 and before
	Cores    []subject.Instance `json:"cores,omitempty"` // the processes, in the order in which they began
}

// Lease binds the calls of a pool's sticky tools to the instance that keeps data for
// the session.
type Lease struct {
	ID     string           `json:"id"`            // the call that began it
	Runner subject.Instance `json:"runner"`        // was given the last call
	Ran    subject.Instance `json:"ran,omitempty"` // ran the last call that has ended
}

// Entry is a message of the window, encoded as a provider.Message.
type Entry struct {
	Turn string          `json:"turn"`
	Msg  json.RawMessage `json:"msg"`
	// After lists the labels of the texts from outside that a result holds, beside its tool's.
	After []string `json:"after,omitempty"`

	source source // of Msg; each turn asks for those of the whole window
}

// source is where a message comes from, as far as it counts for its trust.
type source struct {
	result  bool         // of a tool
	tool    string       // of the result
	files   bool         // that a user has sent
	outside event.Origin // of an input
}

func origin(m provider.Message) source {
	return source{
		result: m.Role == provider.RoleTool, tool: m.Tool, files: len(m.Files) > 0, outside: event.Origin(m.Origin),
	}
}

// UnmarshalJSON implements json.Unmarshaler.
func (e *Entry) UnmarshalJSON(b []byte) error {
	type entry Entry // without this method
	if err := json.Unmarshal(b, (*entry)(e)); err != nil {
		return err
	}
	var m provider.Message
	if err := json.Unmarshal(e.Msg, &m); err != nil {
		return fmt.Errorf("a message of the window: %w", err) // the snapshot is spoiled; the log has it
	}
	e.source = origin(m)
	return nil
}

// SeenInput is the id of an accepted input.
type SeenInput struct {
	Key      string `json:"key"` // writer/id
	Sequence uint64 `json:"seq"`
}

// Pending is an input that waits for the running turn to end.
type Pending struct {
	Sequence    uint64           `json:"sequence"`
	InputID     string           `json:"input_id,omitempty"`
	Writer      subject.Writer   `json:"writer"`
	Source      string           `json:"source,omitempty"`
	Text        string           `json:"text"`
	Annotations []string         `json:"annotations,omitempty"`
	Files       []provider.File  `json:"files,omitempty"`
	Origin      event.Origin     `json:"origin,omitempty"`
	From        string           `json:"from,omitempty"`
	ReplyTo     string           `json:"reply_to,omitempty"`
	Outside     bool             `json:"outside,omitempty"`
	By          *event.FromAgent `json:"by,omitempty"`
	Steer       bool             `json:"steer,omitempty"` // it joins the running turn before its next step
}

// Turn is the work on one input.
type Turn struct {
	ID string `json:"id"`
	Pending
	Began   uint64    `json:"began"` // sequence of the commit that began it
	Started time.Time `json:"started"`
	// Deadline does not count the time that people take: a request moves it by the full
	// time that they may take, and their answer moves it back by what is left.
	Deadline   time.Time      `json:"deadline"`
	AskedUntil time.Time      `json:"asked_until,omitzero"` // when the last pending request expires
	Round      int            `json:"round"`                // model calls begun
	Idle       time.Time      `json:"idle"`                 // time of the last answer of a model, runner or person
	Plan       *Plan          `json:"plan,omitempty"`
	Steps      []Step         `json:"steps,omitempty"` // of this round
	Actions    []event.Action `json:"actions,omitempty"`
	Usage      provider.Usage `json:"usage"`
	// Considered is which tools core considered; nil: none yet.
	Considered *Considered `json:"considered,omitempty"`
	// Recalled is what was found in the agent's memory; nil: it was not searched yet.
	Recalled *Recollection `json:"recalled,omitempty"`
	// Unanswered lists the questions that no model has answered; they are not asked again.
	Unanswered []event.Purpose `json:"unanswered,omitempty"`
	Questions  int             `json:"questions,omitempty"` // of the rounds, those that core asked for itself
	// Skills are the loaded skills that limit the turn's tools.
	Skills []event.Skill `json:"skills,omitempty"`
	// Joined are the inputs that have joined the turn.
	Joined []JoinedInput `json:"joined,omitempty"`
}

// JoinedInput identifies an input that is part of a turn that another one began.
type JoinedInput struct {
	Sequence uint64         `json:"sequence"`
	InputID  string         `json:"input_id,omitempty"`
	Writer   subject.Writer `json:"writer"`
}

// Recollection holds the memories that the model sees during a turn.
type Recollection struct {
	Memories []memory.Hit `json:"memories,omitempty"`
}

// Plan is a model call in progress.
type Plan struct {
	ID       string           `json:"id"`
	Round    int              `json:"round"`
	Attempt  string           `json:"attempt"`
	Attempts int              `json:"attempts"`
	Refused  int              `json:"refused,omitempty"` // earlier attempts that a provider without a free slot refused
	Lost     int              `json:"lost,omitempty"`    // earlier attempts whose provider process failed, not the model
	Provider subject.Instance `json:"provider"`
	Use      string           `json:"use,omitempty"`   // name of the provider that the instance asks; empty: its first
	Model    string           `json:"model,omitempty"` // empty: the provider's default
	Not      []string         `json:"not,omitempty"`   // providers that failed for good
	StartBy  time.Time        `json:"start_by"`
	NotAfter time.Time        `json:"not_after"`
	Tools    []string         `json:"tools"`
	System   string           `json:"system,omitempty"`
	Notes    []string         `json:"notes,omitempty"`
	Error    string           `json:"error,omitempty"` // why the last attempt failed
	// Question is what core asks; nil: the model decides about the turn's next step.
	Question *event.Question `json:"question,omitempty"`
}

// Step is a tool call of the current round.
type Step struct {
	event.Step
	Status     Status          `json:"status"`
	Hash       string          `json:"hash,omitempty"`
	Final      json.RawMessage `json:"final,omitempty"` // arguments that were shown or run
	Asked      uint64          `json:"asked,omitempty"` // sequence of the commit that asked a person
	ExpiresAt  time.Time       `json:"expires_at,omitzero"`
	Warning    *hook.Warning   `json:"warning,omitempty"`
	Always     []event.Grant   `json:"always,omitempty"` // grants that an approval may choose; only while pending
	ApprovedBy subject.Writer  `json:"approved_by,omitempty"`
	// Approval is what the answers must fulfil, and Approvers are the people who have approved.
	Approval  *event.Approval `json:"approval,omitempty"`
	Approvers []Approver      `json:"approvers,omitempty"`
	Answer    *event.Answered `json:"answer,omitempty"` // of a plugin instead of the tool; only while pending
	Spec      string          `json:"spec,omitempty"`   // digest of the spec with which the call was assigned
	Attempt   string          `json:"attempt,omitempty"`
	Attempts  int             `json:"attempts,omitempty"`
	Uncertain bool            `json:"uncertain,omitempty"` // an earlier attempt may have run
	Key       string          `json:"key,omitempty"`       // names the call towards other systems
	Probes    bool            `json:"probes,omitempty"`    // the tool can find out what became of an attempt
	// Probe is set while the call is probed: when its earlier attempts have certainly ended.
	Probe    time.Time        `json:"probe,omitzero"`
	Sticky   string           `json:"sticky,omitempty"` // the pool, if the tool is sticky
	Runner   subject.Instance `json:"runner,omitempty"`
	StartBy  time.Time        `json:"start_by,omitzero"`
	NotAfter time.Time        `json:"not_after,omitzero"`
	Result   *tool.Result     `json:"result,omitempty"` // never changes once it is set
	Note     string           `json:"note,omitempty"`
	// After lists the labels of the texts from outside that Result holds, beside the tool's.
	After []string `json:"after,omitempty"`
	// Obligations are the conditions under which policy let the call pass.
	Obligations *event.Obligations `json:"obligations,omitempty"`
	// Commission is what the call sends to another session, once it is assigned.
	Commission *event.Commission `json:"commission,omitempty"`
	sum        string            // of Result, computed when first needed
}

// Approver is a person who has approved a call.
type Approver struct {
	Person string       `json:"person"`
	Always *event.Grant `json:"always,omitempty"` // the grant that they chose; only while pending
}

// Status is the progress of a step.
type Status string

// The statuses.
const (
	Waiting    Status = "waiting"    // for dependencies, or for a runner
	Confirming Status = "confirming" // for a person
	Approved   Status = "approved"   // by a person; waits for a runner
	Assigned   Status = "assigned"   // to a runner
	Expanded   Status = "expanded"   // a plan:execute call whose steps are in progress
	Done       Status = "done"
)

// New returns the state of a session without a commit.
func New(ref subject.Ref) *State {
	return &State{core: core{Ref: ref, UI: event.StateWaiting}}
}

// clone copies everything that deciding may change. Slices that only grow at the end
// are shared: either [grow] guards them, or their capacity is clipped so that append
// copies.
func (s *State) clone() *State {
	c := *s
	c.Queue, c.Children = slices.Clone(s.Queue), slices.Clone(s.Children)
	c.Breaker.Recent = slices.Clone(s.Breaker.Recent)
	c.Leases = maps.Clone(s.Leases)
	c.Grants = slices.Clip(s.Grants)
	if s.Turn != nil {
		t := *s.Turn
		t.Steps = slices.Clone(t.Steps)
		t.Actions = t.Actions[:len(t.Actions):len(t.Actions)]
		t.Unanswered, t.Skills, t.Joined = slices.Clip(t.Unanswered), slices.Clip(t.Skills), slices.Clip(t.Joined)
		if t.Plan != nil {
			p := *t.Plan
			t.Plan = &p
		}
		c.Turn = &t
	}
	return &c
}

// digest covers the canonical state: the JSON of core, whose fields have a fixed
// order. It includes the previous revision, because the new one is not known yet. Results
// are included as sums, so that large ones are not encoded again for each commit of their
// round.
func (s *State) digest() string {
	type step struct {
		*Step
		Result string `json:"result,omitempty"`
	}
	type turn struct {
		*Turn
		Steps []step `json:"steps,omitempty"`
	}
	x := struct {
		*core
		Turn *turn  `json:"turn,omitempty"`
		Prev uint64 `json:"prev"`
	}{core: &s.core, Prev: s.Rev}
	if s.Turn != nil {
		x.Turn = &turn{Turn: s.Turn, Steps: make([]step, len(s.Turn.Steps))}
		for i := range s.Turn.Steps {
			st := &s.Turn.Steps[i]
			x.Turn.Steps[i] = step{st, st.resultSum()}
		}
	}
	h := sha256.New()
	if err := json.NewEncoder(h).Encode(x); err != nil {
		panic(fmt.Sprintf("decide: encoding state: %v", err)) // plain data always encodes
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// resultSum returns "" without a result.
func (st *Step) resultSum() string {
	if st.Result != nil && st.sum == "" {
		st.sum = chain("", encode(st.Result))
	}
	return st.sum
}

func chain(prev string, parts ...[]byte) string {
	h := sha256.New()
	h.Write([]byte(prev))
	for _, p := range parts {
		h.Write([]byte{0})
		h.Write(p)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

func (e Entry) chain(prev string) string {
	if len(e.After) == 0 {
		return chain(prev, []byte(e.Turn), e.Msg)
	}
	return chain(prev, []byte(e.Turn), e.Msg, encode(e.After))
}

func (in SeenInput) chain(prev string) string {
	return chain(prev, []byte(in.Key), strconv.AppendUint(nil, in.Sequence, 10))
}

// Hash identifies what an approval covers: a tool with its owner and everything that it
// declares, exactly these arguments, and the answer of a plugin instead of the tool, if
// any.
func Hash(spec tool.Spec, args json.RawMessage, instead *event.Answered) string {
	if instead == nil {
		return chain(spec.Name, []byte(spec.Digest()), args)
	}
	return chain(spec.Name, []byte(spec.Digest()), args, []byte(instead.By), instead.Data)
}

// TurnID returns the id of the turn of the input stored at seq.
func TurnID(seq uint64) string { return event.TurnID(seq) }

// Parked reports whether only people, or their timers, can advance the turn: they must answer, or
// resume the session. A request that had expired when the last commit was made has lost its timer,
// so the driver must end it.
func (s *State) Parked() bool { return (s.asking() || s.held()) && !s.expired() }

func (s *State) expired() bool {
	return s.Turn != nil && slices.ContainsFunc(s.Turn.Steps, func(st Step) bool {
		return st.Status == Confirming && !s.Now.Before(st.ExpiresAt)
	})
}

// asking reports whether the turn does nothing but wait for people.
func (s *State) asking() bool {
	if s.Turn == nil || s.Turn.Plan != nil {
		return false
	}
	asked := false
	for i := range s.Turn.Steps {
		switch s.Turn.Steps[i].Status {
		case Confirming:
			asked = true
		case Assigned, Approved:
			return false
		case Waiting:
			if s.Turn.ready(&s.Turn.Steps[i]) && !s.holds() {
				return false
			}
		}
	}
	return asked
}

// Confirmations lists the requests that wait for a person.
func (s *State) Confirmations() []Step {
	var out []Step
	if s.Turn == nil {
		return nil
	}
	for _, st := range s.Turn.Steps {
		if st.Status == Confirming {
			out = append(out, st)
		}
	}
	return out
}

// Wants returns what could run if an executor had a free slot: the turn's model call,
// and the tools of calls.
func (s *State) Wants() (plan bool, tools []string) {
	if s.Turn == nil || s.Turn.Plan != nil || s.Paused != nil {
		return false, nil
	}
	for i := range s.Turn.Steps {
		if st := &s.Turn.Steps[i]; st.Status == Approved || st.Status == Waiting && s.Turn.ready(st) && !s.holds() {
			tools = append(tools, st.Tool)
		}
	}
	return len(s.Turn.Steps) == 0, tools
}

// Waits reports whether something could run if an executor were present, or has waited
// too long.
func (s *State) Waits() bool {
	plan, tools := s.Wants()
	return plan || len(tools) > 0 || s.Turn != nil && s.Turn.Plan == nil && s.expired()
}
