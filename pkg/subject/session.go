package subject

import (
	"fmt"
	"strings"
)

// Ref identifies one session of one agent: the unit of order and of isolation.
type Ref struct {
	Agent   Agent   `json:"agent"`
	Session Session `json:"session"`
}

// ParseRef parses both ids.
func ParseRef(agent, session string) (Ref, error) {
	a, err := Parse[Agent](agent)
	if err != nil {
		return Ref{}, err
	}
	s, err := Parse[Session](session)
	if err != nil {
		return Ref{}, err
	}
	return Ref{a, s}, nil
}

// String returns "agent/session", for people.
func (r Ref) String() string { return string(r.Agent) + "/" + string(r.Session) }

func (r Ref) prefix() string { return "agent." + string(r.Agent) + "." + string(r.Session) + "." }

// CauseKind is the kind of a cause.
type CauseKind string

// The kinds of cause.
const (
	Input        CauseKind = "input"        // a perception
	Confirmation CauseKind = "confirmation" // an answer to a confirmation request
	Cancel       CauseKind = "cancel"       // stop an input's turn
	Command      CauseKind = "command"      // a slash command, which bypasses the model
	Timer        CauseKind = "timer"        // a time has been reached; written only by core
)

// CauseKinds lists every kind of cause.
func CauseKinds() []CauseKind { return []CauseKind{Input, Confirmation, Cancel, Command, Timer} }

// TimerWriter is the writer of timer causes.
const TimerWriter Writer = "core"

// ScheduleWriter is the writer of the inputs that agents have scheduled. Only core writes them.
const ScheduleWriter Writer = "schedule"

// AgentWriter is the writer of the inputs that agents send each other. Only core writes them.
const AgentWriter Writer = "agent"

// OwnWriter reports whether only core may write as w.
func OwnWriter(w Writer) bool { return w == TimerWriter || w == ScheduleWriter || w == AgentWriter }

// personPrefix begins the writer of a person behind the UI bridge: ui-<name>.
const personPrefix = "ui-"

// Person returns the writer of a person behind the UI bridge, ui-<name>. No other client can write
// as a person, because their causes are stored on separate subjects.
func Person(name string) Writer { return Writer(personPrefix + name) }

// Cause returns the subject on which a writer stores a cause:
// agent.<agent>.<session>.sense.<kind>.<writer>, and for a person behind the UI bridge
// agent.<agent>.<session>.person.<kind>.<name>.
func (r Ref) Cause(kind CauseKind, w Writer) string {
	if name, ok := strings.CutPrefix(string(w), personPrefix); ok {
		return r.prefix() + "person." + string(kind) + "." + name
	}
	return r.prefix() + "sense." + string(kind) + "." + string(w)
}

// Causes returns a filter for all causes of the session.
func (r Ref) Causes() string { return r.prefix() + "*.*.*" }

// CausesOf returns the subjects on which causes of a kind are stored, for any writer.
func (r Ref) CausesOf(kind CauseKind) []string {
	return []string{r.prefix() + "sense." + string(kind) + ".*", r.prefix() + "person." + string(kind) + ".*"}
}

// Commit returns the subject of the session's commits: agent.<agent>.<session>.commit.
func (r Ref) Commit() string { return r.prefix() + "commit" }

// Live returns the subject of the live copy of an event:
// agent.<agent>.<session>.<phase>.<event>. The phase and the event are parts of the event's
// type, never of a request.
func (r Ref) Live(phase, event string) string { return r.prefix() + phase + "." + event }

// Answer returns the subject of the copy of a live event for the writer whose input began the turn:
// answer.<writer>.<agent>.<session>.<phase>.<event>.
func (r Ref) Answer(w Writer, phase, event string) string {
	return "answer." + string(w) + "." + string(r.Agent) + "." + string(r.Session) + "." + phase + "." + event
}

// IsAnswer reports whether s is a subject of [Ref.Answer].
func (r Ref) IsAnswer(s string) bool {
	t := strings.Split(s, ".")
	return len(t) == 6 && t[0] == "answer" && Valid(t[1]) && t[2] == string(r.Agent) && t[3] == string(r.Session) &&
		Valid(t[4]) && Valid(t[5])
}

// All returns a filter for all messages of the session: causes, commits and live copies.
func (r Ref) All() string { return r.prefix() + ">" }

// Stream returns the subject of token deltas, which may be lost: stream.<agent>.<session>.
func (r Ref) Stream() string { return "stream." + string(r.Agent) + "." + string(r.Session) }

// Frame returns the subject of the pictures that a person's camera takes for the session, which may
// be lost: media.frame.<agent>.<session>.
func (r Ref) Frame() string { return "media.frame." + string(r.Agent) + "." + string(r.Session) }

// TimerSchedule returns the subject on which a timer is stored: timer.<agent>.<session>.<id>.
func (r Ref) TimerSchedule(id string) string {
	return "timer." + string(r.Agent) + "." + string(r.Session) + "." + Encode(id)
}

// TimerFired returns the subject on which the server publishes a timer that has fired:
// fired.<agent>.<session>.<id>.
func (r Ref) TimerFired(id string) string {
	return "fired." + string(r.Agent) + "." + string(r.Session) + "." + Encode(id)
}

// Dead returns the subject for copies of the session's poison causes: dead.<agent>.<session>.
func (r Ref) Dead() string { return "dead." + string(r.Agent) + "." + string(r.Session) }

// Filters for the log and the other streams.
const (
	AllCauses  = "agent.*.*.*.*.*" // those of clients and those of people
	AllSensed  = "agent.*.*.sense.*.*"
	AllPeople  = "agent.*.*.person.*.*"
	AllCommits = "agent.*.*.commit"
	AllTimers  = "timer.*.*.*"
	AllFired   = "fired.*.*.*"
	AllDead    = "dead.>"
)

// Audit is the subject of the audit log, which only core writes and reads.
const Audit = "audit.log"

// CauseSubject is a parsed cause subject.
type CauseSubject struct {
	Ref
	Kind   CauseKind
	Writer Writer
	// Old is true for a cause of a person on a subject of contract 1,
	// agent.<agent>.<session>.sense.<kind>.ui-<name>, on which other clients could write, too.
	Old bool
}

// ParseCause parses agent.<agent>.<session>.sense.<kind>.<writer> and
// agent.<agent>.<session>.person.<kind>.<name>. An unknown kind is not an error: core ends such a
// cause with a terminal event.
func ParseCause(s string) (CauseSubject, error) {
	t := strings.Split(s, ".")
	if len(t) != 6 || t[0] != "agent" || t[3] != "sense" && t[3] != "person" || !Valid(t[4]) {
		return CauseSubject{}, fmt.Errorf("%w: %q is not a cause subject", ErrInvalidSubject, clip(s))
	}
	ref, err := parseOwner(t[1], t[2])
	if err != nil {
		return CauseSubject{}, err
	}
	w, old := t[5], false
	switch prefixed := strings.HasPrefix(w, personPrefix); {
	case t[3] == "sense":
		old = prefixed
	case prefixed || !Valid(w):
		return CauseSubject{}, fmt.Errorf("%w: %q: %q is not the name of a person", ErrInvalidSubject, clip(s), clip(w))
	default:
		w = personPrefix + w
	}
	writer, err := Parse[Writer](w)
	if err != nil {
		return CauseSubject{}, fmt.Errorf("%w: %w", ErrInvalidSubject, err)
	}
	return CauseSubject{ref, CauseKind(t[4]), writer, old}, nil
}

// ParseCommit parses agent.<agent>.<session>.commit.
func ParseCommit(s string) (Ref, error) {
	t := strings.Split(s, ".")
	if len(t) != 4 || t[0] != "agent" || t[3] != "commit" {
		return Ref{}, fmt.Errorf("%w: %q is not a commit subject", ErrInvalidSubject, clip(s))
	}
	return parseOwner(t[1], t[2])
}

// ParseLive parses agent.<agent>.<session>.<phase>.<event>.
func ParseLive(s string) (ref Ref, phase, event string, err error) {
	t := strings.Split(s, ".")
	if len(t) != 5 || t[0] != "agent" || !Valid(t[3]) || !Valid(t[4]) {
		return Ref{}, "", "", fmt.Errorf("%w: %q is not a live event subject", ErrInvalidSubject, clip(s))
	}
	if ref, err = parseOwner(t[1], t[2]); err != nil {
		return Ref{}, "", "", err
	}
	return ref, t[3], t[4], nil
}

// ParseFired parses fired.<agent>.<session>.<id>.
func ParseFired(s string) (ref Ref, id string, err error) {
	t := strings.Split(s, ".")
	if len(t) != 4 || t[0] != "fired" {
		return Ref{}, "", fmt.Errorf("%w: %q is not the subject of a fired timer", ErrInvalidSubject, clip(s))
	}
	if ref, err = parseOwner(t[1], t[2]); err != nil {
		return Ref{}, "", err
	}
	if id, err = Decode(t[3]); err != nil {
		return Ref{}, "", fmt.Errorf("%w: %w", ErrInvalidSubject, err)
	}
	return ref, id, nil
}

// parseOwner calls ParseRef for two tokens of a subject.
func parseOwner(agent, session string) (Ref, error) {
	ref, err := ParseRef(agent, session)
	if err != nil {
		return Ref{}, fmt.Errorf("%w: %w", ErrInvalidSubject, err)
	}
	return ref, nil
}
