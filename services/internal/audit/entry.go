package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"skandha.dev/pkg/subject"
)

// Verb is what was done.
type Verb string

// The verbs. Those up to [Reset] are picked from commits.
const (
	Asked     Verb = "asked"     // an input was taken up
	Commanded Verb = "commanded" // a slash command was taken up
	Requested Verb = "requested" // an agent asked people for approval of a call
	Approved  Verb = "approved"  // a person approved a call
	Refused   Verb = "refused"   // a person denied a call
	Expired   Verb = "expired"   // nobody answered in time, which counts as denied
	Denied    Verb = "denied"    // a hook, or core by policy, denied a call, an input, an answer or a manifest
	Executed  Verb = "executed"  // a tool ran, or may have run
	Cancelled Verb = "cancelled" // a turn was stopped
	Locked    Verb = "locked"    // a session accepts no inputs
	Reset     Verb = "reset"     // a conversation was cleared

	Registered   Verb = "registered"   // a plugin joined, or came back
	Unregistered Verb = "unregistered" // a plugin left
	Lost         Verb = "lost"         // a plugin no longer answers
	Suspended    Verb = "suspended"    // a plugin is not asked any more
	Resumed      Verb = "resumed"      // it is asked again
	Unloaded     Verb = "unloaded"     // an operator had a plugin drained
	Invited      Verb = "invited"      // an identity may connect
	Rotated      Verb = "rotated"      // an identity got new credentials
	Revoked      Verb = "revoked"      // an identity may not connect any more
	Remembered   Verb = "remembered"   // a memory was stored
	Corrected    Verb = "corrected"    // a memory was changed
	Forgotten    Verb = "forgotten"    // a memory was deleted
	Unscheduled  Verb = "unscheduled"  // a schedule was deleted
	Resent       Verb = "resent"       // a message to people was sent again
	Dropped      Verb = "dropped"      // a message to people was deleted
	Rewritten    Verb = "rewritten"    // a session was written to the view again, or all were
	Switched     Verb = "switched"     // a camera or microphone was switched on or off
	Configured   Verb = "configured"   // core runs with other people, policies or permissions
	Failed       Verb = "failed"       // an administrative act that an earlier entry announces was not performed
	Renewed      Verb = "renewed"      // the log of decisions is another one
	Damaged      Verb = "damaged"      // the audit log itself was changed, cut or deleted
)

// Verbs lists all verbs.
func Verbs() []Verb {
	return []Verb{
		Asked, Commanded, Requested, Approved, Refused, Expired, Denied, Executed, Cancelled, Locked, Reset,
		Registered, Unregistered, Lost, Suspended, Resumed, Unloaded, Invited, Rotated, Revoked,
		Remembered, Corrected, Forgotten, Unscheduled, Resent, Dropped, Rewritten, Switched, Configured, Failed, Renewed, Damaged,
	}
}

// Kind is the kind of an identity.
type Kind string

// The kinds.
const (
	Person   Kind = "person"   // behind the UI bridge, or whom the configuration names
	Plugin   Kind = "plugin"   //
	Listener Kind = "listener" // a writer of inputs
	Operator Kind = "operator" // who uses the command
	Agent    Kind = "agent"    //
	Core     Kind = "core"     //
)

// Who is named as the one that acted.
type Who struct {
	Kind Kind   `json:"kind"`
	Name string `json:"name"`
	// Via is by what the identity acted: the writer of a person's answer, or the service that asked for an operator.
	Via string `json:"via,omitempty"`
	// From is the sender, as a listener has authenticated them.
	From string `json:"from,omitempty"`
}

// String returns the name, with the sender.
func (w Who) String() string {
	if w.From != "" {
		return w.Name + "/" + w.From
	}
	return w.Name
}

// Source is the place of a decision in the log.
type Source struct {
	Sequence uint64 `json:"sequence"` // of the commit
	Part     string `json:"part"`     // of the commit, such as events[3] or hooks[0]
	Digest   string `json:"digest"`   // SHA-256 of the commit, in hex
}

// Position is how far the log of decisions was read.
type Position struct {
	Log      time.Time `json:"log,omitzero"` // when the stream was created: another time means another log
	Sequence uint64    `json:"sequence"`
}

// Is reports whether the positions are the same.
func (p Position) Is(q Position) bool { return p.Sequence == q.Sequence && p.Log.Equal(q.Log) }

// Head is an entry of the chain by which the ones before it can be verified.
type Head struct {
	N      uint64    `json:"n"`
	Digest string    `json:"digest"`
	Time   time.Time `json:"time"` // of the entry
}

// Entry is one entry.
type Entry struct {
	N       uint64          `json:"n"` // from 1, without gaps
	Time    time.Time       `json:"time"`
	By      Who             `json:"by"`
	Verb    Verb            `json:"verb"`
	What    string          `json:"what,omitempty"` // the tool, plugin, identity, memory, schedule or message
	Agent   subject.Agent   `json:"agent,omitempty"`
	Session subject.Session `json:"session,omitempty"`
	Turn    string          `json:"turn,omitempty"`
	Call    string          `json:"call,omitempty"`   // the tool call, which is also the id of its confirmation request
	Detail  string          `json:"detail,omitempty"` // in words; shortened
	// Hash is of what is not in the entry: of an input, or of a call's tool and arguments.
	Hash string `json:"hash,omitempty"`
	// Expected, with the verb damaged, is the entry that was known and is no longer there.
	Expected *Head   `json:"expected,omitempty"`
	Of       uint64  `json:"of,omitempty"` // with the verb failed: the number of the entry that announces the act
	ID       string  `json:"id,omitempty"` // of an act that is not from the log
	Source   *Source `json:"source,omitempty"`
	// Log is how far the log of decisions is audited with this entry.
	Log    Position         `json:"log"`
	Core   subject.Instance `json:"core"` // that wrote it
	Prev   string           `json:"prev"` // digest of the entry before; empty for the first
	Digest string           `json:"digest"`
}

// Head returns the entry as a head.
func (e Entry) Head() Head { return Head{e.N, e.Digest, e.Time} }

// sealed is what follows the digested part of a line: ,"digest":"<64 digits>"}.
const (
	sealKey = `,"digest":"`
	sealLen = len(sealKey) + 2*sha256.Size + len(`"}`)
)

// Seal sets the digest and returns the line.
func (e *Entry) Seal() ([]byte, error) {
	e.Digest = ""
	line, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("encoding entry %d of the audit log: %w", e.N, err)
	}
	body := bytes.TrimSuffix(line, []byte(sealKey+`"}`))
	e.Digest = Digest(append(slices.Clone(body), '}'))
	return append(body, sealKey+e.Digest+`"}`...), nil
}

// Digest returns the SHA-256 in hex.
func Digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

var errDigest = errors.New("its digest is not that of its content")

// Parse reads a line and checks its digest.
func Parse(line []byte) (e Entry, err error) {
	if err := json.Unmarshal(line, &e); err != nil {
		return e, fmt.Errorf("it is not an entry: %w", err)
	}
	if len(line) < sealLen || string(line[len(line)-sealLen:]) != sealKey+e.Digest+`"}` {
		return e, errDigest
	}
	if Digest(append(slices.Clone(line[:len(line)-sealLen]), '}')) != e.Digest {
		return e, errDigest
	}
	return e, nil
}

// Block returns lines as they are stored together.
func Block(lines [][]byte) []byte { return append(bytes.Join(lines, []byte("\n")), '\n') }

// Lines returns the lines of a block.
func Lines(block []byte) [][]byte {
	return bytes.Split(bytes.TrimSuffix(block, []byte("\n")), []byte("\n"))
}
