package e2etest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// The observer's own idea of what is in the log. It shares no code with the
// services: what they agree on wrongly, it would not see.

// Entry is one message of the log.
type Entry struct {
	Seq     uint64
	Time    time.Time
	Subject string
	Header  map[string][]string
	Data    []byte
}

// Session is "<agent>.<session>" of the entry's subject.
func (e Entry) Session() string {
	t := strings.Split(e.Subject, ".")
	if len(t) < 4 {
		return ""
	}
	return t[1] + "." + t[2]
}

// IsCommit reports whether the entry is a core's decision.
func (e Entry) IsCommit() bool { return strings.HasSuffix(e.Subject, ".commit") }

// Kind is what kind of cause the entry is: input, command, …; "" for a commit.
func (e Entry) Kind() string {
	if t := strings.Split(e.Subject, "."); len(t) == 6 {
		return t[4]
	}
	return ""
}

// Writer is who stored the cause.
func (e Entry) Writer() string {
	t := strings.Split(e.Subject, ".")
	switch {
	case len(t) != 6:
		return ""
	case t[3] == "person":
		return "ui-" + t[5]
	}
	return t[5]
}

// MustEnd reports whether the cause is one that gets a terminal event. The
// others change what is pending, or nothing.
func (e Entry) MustEnd() bool {
	switch e.Kind() {
	case "", "confirmation", "cancel", "timer":
		return false
	}
	return wellFormed(e.Subject) && !e.isAnswer()
}

// isAnswer reports whether it counts as an answer of the server that was sent to the wrong subject, which is no
// cause.
func (e Entry) isAnswer() bool {
	return len(e.Header["Nats-Stream"]) > 0 && len(e.Header["Nats-Sequence"]) > 0
}

// wellFormed reports whether every token of a subject is an id; a cause on any
// other subject belongs to nobody.
func wellFormed(subject string) bool {
	for token := range strings.SplitSeq(subject, ".") {
		if len(token) > 64 || strings.ContainsFunc(token, func(r rune) bool {
			return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-", r)
		}) {
			return false
		}
	}
	return true
}

// Commit is a decision as stored in the log.
type Commit struct {
	Entry
	ID      string `json:"commit_id"`
	Prev    uint64 `json:"prev"`
	Trigger struct {
		Kind     string `json:"kind"`
		Sequence uint64 `json:"sequence"`
		Cause    string `json:"cause"`
		Writer   string `json:"writer"`
		Call     string `json:"call"`
		Attempt  string `json:"attempt"`
	} `json:"trigger"`
	Cursor uint64    `json:"cursor"`
	Driver uint64    `json:"driver"`
	Now    time.Time `json:"now"`
	Digest string    `json:"digest"`
	Events []Event   `json:"-"`
}

// Event is one event of a commit.
type Event struct {
	Type string          `json:"type"`
	Turn string          `json:"turn"`
	Data json.RawMessage `json:"data"`
}

// fields are those of all events that the observer looks at.
type fields struct {
	Sequence       uint64          `json:"sequence"`
	InputID        string          `json:"input_id"`
	Disposition    string          `json:"disposition"`
	Plan           string          `json:"plan"`
	Attempt        string          `json:"attempt"`
	Provider       string          `json:"provider"`
	Steps          []step          `json:"steps"`
	Call           string          `json:"call"`
	Tool           string          `json:"tool"`
	Args           json.RawMessage `json:"args"`
	Hash           string          `json:"hash"`
	Runner         string          `json:"runner"`
	ConfirmationID string          `json:"confirmation_id"`
	ExpiresAt      time.Time       `json:"expires_at"`
	Outcome        string          `json:"outcome"`
	Action         string          `json:"action"`
	By             string          `json:"by"`
	Always         json.RawMessage `json:"always"`
	Code           string          `json:"code"`
	Reason         string          `json:"reason"`
	Answer         string          `json:"answer"`
	Result         *toolResult     `json:"result"`
}

type step struct {
	Call       string          `json:"call"`
	CallID     string          `json:"call_id"`
	Parent     string          `json:"parent"`
	Tool       string          `json:"tool"`
	Args       json.RawMessage `json:"args"`
	DependsOn  []string        `json:"depends_on"`
	Idempotent bool            `json:"idempotent"`
}

type toolResult struct {
	Success bool `json:"success"`
	Error   *struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

func (r *toolResult) outcome() string {
	switch {
	case r == nil:
		return "no result"
	case r.Success:
		return "success"
	case r.Error == nil:
		return "failure without a reason"
	}
	return r.Error.Code
}

func readCommit(e Entry) (Commit, error) {
	var batch []Event
	if err := json.Unmarshal(e.Data, &batch); err != nil {
		return Commit{}, err
	}
	if len(batch) == 0 || batch[0].Type != "skandha.commit.v1" {
		return Commit{}, fmt.Errorf("a commit begins with its header, not with %.80s", e.Data)
	}
	c := Commit{}
	if err := json.Unmarshal(batch[0].Data, &c); err != nil {
		return Commit{}, err
	}
	c.Entry, c.Events = e, batch[1:]
	return c, nil
}

func (e Event) fields() (fields, error) {
	var f fields
	err := json.Unmarshal(e.Data, &f)
	return f, err
}

func (e Event) terminal() bool {
	return e.Type == "skandha.reflect.recorded.v1" || e.Type == "skandha.turn.failed.v1"
}

// Terminal is the end of an input.
type Terminal struct {
	Commit uint64
	Failed string // the code; "" if it was recorded
	Reason string
	Answer string
}

// CallLog is what the log says of a tool call.
type CallLog struct {
	Session   string
	Tool      string
	Parent    string
	Requested []Assigned // its attempts
	Asked     uint64     // commit that asked a person
	Expires   time.Time
	Always    json.RawMessage // what an approval could grant
	Hash      string
	Args      json.RawMessage
	Confirmed string // the outcome of asking
	Results   []string
	Done      uint64 // commit of the result
}

// Assigned is an attempt at a call.
type Assigned struct {
	Commit          uint64
	Attempt, Runner string
}

// Log is an index of what has been read of the log.
type Log struct {
	Entries   []Entry
	Terminals map[uint64][]Terminal
	Calls     map[string]*CallLog
	Plans     map[string][]Assigned // attempts of model calls, by plan
	Last      map[string]Commit     // by session
	First     map[string]uint64     // by session: the first cause that a commit decides about
	Answered  map[uint64][]string   // confirmation -> what came of it; "refused: …" if it does not count
	Bad       []string              // what could not be read
}

// NewLog is an empty index.
func NewLog() *Log {
	return &Log{
		Terminals: map[uint64][]Terminal{}, Calls: map[string]*CallLog{}, Plans: map[string][]Assigned{},
		Last: map[string]Commit{}, First: map[string]uint64{}, Answered: map[uint64][]string{},
	}
}

// Add reads the next entry.
func (l *Log) Add(e Entry) {
	l.Entries = append(l.Entries, e)
	if !e.IsCommit() {
		return
	}
	c, err := readCommit(e)
	if err != nil {
		l.Bad = append(l.Bad, fmt.Sprintf("commit %d cannot be read: %v", e.Seq, err))
		return
	}
	l.Last[e.Session()] = c
	if l.First[e.Session()] == 0 {
		l.First[e.Session()] = c.Trigger.Sequence
	}
	for _, ev := range c.Events {
		f, err := ev.fields()
		if err != nil {
			l.Bad = append(l.Bad, fmt.Sprintf("commit %d: %s cannot be read: %v", e.Seq, ev.Type, err))
			continue
		}
		l.event(c, ev, f)
	}
}

func (l *Log) event(c Commit, ev Event, f fields) {
	switch ev.Type {
	case "skandha.reflect.recorded.v1":
		l.Terminals[f.Sequence] = append(l.Terminals[f.Sequence], Terminal{Commit: c.Seq, Answer: f.Answer})
	case "skandha.turn.failed.v1":
		l.Terminals[f.Sequence] = append(l.Terminals[f.Sequence], Terminal{Commit: c.Seq, Failed: f.Code, Reason: f.Reason})
	case "skandha.plan.requested.v1":
		l.Plans[f.Plan] = append(l.Plans[f.Plan], Assigned{c.Seq, f.Attempt, f.Provider})
	case "skandha.plan.completed.v1":
		for _, st := range f.Steps {
			l.Calls[st.Call] = &CallLog{Session: c.Session(), Tool: st.Tool, Parent: st.Parent}
		}
	case "skandha.act.requested.v1":
		l.call(f.Call, func(k *CallLog) { k.Requested = append(k.Requested, Assigned{c.Seq, f.Attempt, f.Runner}) })
	case "skandha.ui.tool_call_request.v1":
		l.call(f.ConfirmationID, func(k *CallLog) {
			k.Asked, k.Hash, k.Args, k.Expires, k.Always = c.Seq, f.Hash, f.Args, f.ExpiresAt, f.Always
		})
	case "skandha.act.confirmed.v1":
		l.call(f.Call, func(k *CallLog) { k.Confirmed = f.Outcome })
		l.Answered[c.Trigger.Sequence] = append(l.Answered[c.Trigger.Sequence], f.Outcome)
	case "skandha.security.audited.v1":
		if f.Action == "confirmation" {
			l.Answered[c.Trigger.Sequence] = append(l.Answered[c.Trigger.Sequence], "refused: "+f.Reason)
		}
	case "skandha.act.completed.v1":
		l.call(f.Call, func(k *CallLog) { k.Results, k.Done = append(k.Results, f.Result.outcome()), c.Seq })
	}
}

// call is for calls that a plan has requested; the audit says if others turn up.
func (l *Log) call(id string, f func(*CallLog)) {
	if k := l.Calls[id]; k != nil {
		f(k)
	}
}

// CallsOf lists the calls of an input's turn, in order of their ids.
func (l *Log) CallsOf(seq uint64) []*CallLog {
	prefix := fmt.Sprintf("t%d-", seq)
	var ids []string
	for id := range l.Calls {
		if strings.HasPrefix(id, prefix) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	var out []*CallLog
	for _, id := range ids {
		out = append(out, l.Calls[id])
	}
	return out
}

// Causes lists the causes of a session.
func (l *Log) Causes(session string) []Entry {
	var out []Entry
	for _, e := range l.Entries {
		if !e.IsCommit() && e.Session() == session {
			out = append(out, e)
		}
	}
	return out
}

// Undecided lists the answers to sessions that are there of which nothing has come yet.
func (l *Log) Undecided() []Entry {
	var out []Entry
	for _, e := range l.Entries {
		if first := l.First[e.Session()]; e.Kind() != "confirmation" || first == 0 || e.Seq < first ||
			!wellFormed(e.Subject) {
			continue
		}
		if len(l.Answered[e.Seq]) == 0 && len(l.Terminals[e.Seq]) == 0 {
			out = append(out, e)
		}
	}
	return out
}

// Open lists the causes that have no terminal event and need one.
func (l *Log) Open() []Entry {
	var out []Entry
	for _, e := range l.Entries {
		if e.MustEnd() && len(l.Terminals[e.Seq]) == 0 {
			out = append(out, e)
		}
	}
	return out
}
