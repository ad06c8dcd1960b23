package subject

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ErrInvalidSubject is wrapped by every error about a subject that does not parse.
var ErrInvalidSubject = errors.New("invalid subject")

// ExecutorKind is the kind of an executor instance.
type ExecutorKind string

// The kinds of executor.
const (
	Runner   ExecutorKind = "runner"   // runs tools; includes the sandbox service
	Provider ExecutorKind = "provider" // sends requests to language models
)

// Executor returns the subject of requests to one executor instance: runner.<instance> or
// provider.<instance>.
func Executor(kind ExecutorKind, i Instance) string { return string(kind) + "." + string(i) }

// Announce returns the subject on which an executor instance announces what it offers:
// announce.<kind>.<instance>.
func Announce(kind ExecutorKind, i Instance) string {
	return "announce." + string(kind) + "." + string(i)
}

// AllAnnouncements matches the announcements of all executors.
const AllAnnouncements = "announce.*.*"

// Discover returns the subject of requests to all executors of a kind to announce themselves
// now: discover.<kind>.
func Discover(kind ExecutorKind) string { return "discover." + string(kind) }

// Service returns the subject of requests to any one replica of a service:
// service.<name>.<verb>. The queue group is the name. Both parts are literals in the code.
func Service(name, verb string) string { return "service." + name + "." + verb }

// Call returns the subject of a caller's requests to core to run an internal tool:
// service.core.call.<caller>. A caller may use only its own name.
func Call(caller Writer) string { return Service("core", "call") + "." + string(caller) }

// ParseCall parses service.core.call.<caller>.
func ParseCall(s string) (Writer, error) {
	name, ok := strings.CutPrefix(s, Call(""))
	if !ok || !Valid(name) {
		return "", fmt.Errorf("%w: %q is not the subject of an internal call", ErrInvalidSubject, clip(s))
	}
	return Writer(name), nil
}

// Past returns the subject of requests to core for what happened in a session:
// service.core.past.<agent>.<session>. A party may use only those that its charter names.
func Past(ref Ref) string {
	return Service("core", "past") + "." + string(ref.Agent) + "." + string(ref.Session)
}

// AllPasts matches the requests for the past of all sessions.
const AllPasts = "service.core.past.*.*"

// ParsePast parses service.core.past.<agent>.<session>.
func ParsePast(s string) (Ref, error) {
	rest, ok := strings.CutPrefix(s, "service.core.past.")
	agent, session, _ := strings.Cut(rest, ".")
	if !ok || !Valid(agent) || !Valid(session) {
		return Ref{}, fmt.Errorf("%w: %q is not the subject of a session's past", ErrInvalidSubject, clip(s))
	}
	return Ref{Agent: Agent(agent), Session: Session(session)}, nil
}

// SessionsOf returns the subject of requests to core for the sessions of one agent: service.core.sessions.<agent>.
func SessionsOf(a Agent) string { return Service("core", "sessions") + "." + string(a) }

// Reply returns the subject on which a responder answers a caller:
// reply.<caller>.<responder>.<instance>.<n>, where the instance is the caller's process. A caller
// may receive only what begins with its own name, and a responder may publish only with its own
// in second place. So it can answer only as itself, and nobody else reads the answer.
func Reply(caller Identity, responder string, i Instance, n uint64) string {
	return "reply." + string(caller) + "." + responder + "." + string(i) + "." + strconv.FormatUint(n, 36)
}

// Replies returns a filter for all answers to one process of a caller.
func Replies(caller Identity, i Instance) string {
	return "reply." + string(caller) + ".*." + string(i) + ".*"
}

// Answer is a parsed reply subject.
type Answer struct {
	Caller    Identity
	Responder string
	Instance  Instance // of the caller
	N         uint64
}

// Subject returns the reply subject.
func (a Answer) Subject() string { return Reply(a.Caller, a.Responder, a.Instance, a.N) }

// From returns the same answer by another responder.
func (a Answer) From(responder string) Answer {
	a.Responder = responder
	return a
}

// ParseReply parses reply.<caller>.<responder>.<instance>.<n>.
func ParseReply(s string) (Answer, error) {
	t := strings.Split(s, ".")
	if len(t) != 5 || t[0] != "reply" || !Valid(t[1]) || !Valid(t[2]) || !Valid(t[3]) {
		return Answer{}, fmt.Errorf("%w: %q is not a reply subject", ErrInvalidSubject, clip(s))
	}
	n, err := strconv.ParseUint(t[4], 36, 64)
	if err != nil || strconv.FormatUint(n, 36) != t[4] {
		return Answer{}, fmt.Errorf("%w: %q is not a reply subject", ErrInvalidSubject, clip(s))
	}
	return Answer{Identity(t[1]), t[2], Instance(t[3]), n}, nil
}

// IsReplyFrom reports whether s is a subject on which responder may answer: a reply subject with
// its name, or one that the server made for a request from another account. Answers on other
// subjects would make it a confused deputy: it would publish with its own rights on a subject that
// the sender chose. A client cannot ask for an answer on a subject of the server.
func IsReplyFrom(s, responder string) bool {
	if strings.HasPrefix(s, serverReply) {
		return true
	}
	a, err := ParseReply(s)
	return err == nil && a.Responder == responder
}

// serverReply begins the reply subjects that the server makes for requests from other accounts.
const serverReply = "_R_."

// IsOldReplyFrom reports whether s is a reply subject of the first contract,
// reply.<responder>.<caller>.<n>, with which old plugins still ask.
func IsOldReplyFrom(s, responder string) bool {
	t := strings.Split(s, ".")
	return len(t) == 4 && t[0] == "reply" && t[1] == responder && Valid(t[2]) && Valid(t[3])
}

// Hook returns the subject on which a plugin serves a hook point: hook.<point>.<plugin>.
func Hook(point string, p Plugin) string { return "hook." + Encode(point) + "." + string(p) }

// Tool returns the subject on which a plugin serves one of its tools:
// tool.<plugin>.<encoded name>.
func Tool(p Plugin, name string) string { return "tool." + string(p) + "." + Encode(name) }

// Replica returns the subject of requests to one replica of a plugin, where subj is the
// plugin's subject, of a [Tool] or [Generate]: <subj>.<instance>, without a queue group. A
// replica that is subscribed to it remembers its requests, so the same request may be sent to
// it again.
func Replica(subj string, i Instance) string { return subj + "." + string(i) }

// Generate returns the subject on which a plugin serves language models:
// llm.<plugin>.generate.
func Generate(p Plugin) string { return "llm." + string(p) + ".generate" }

// Storage returns the subject on which a plugin serves a storage verb:
// storage.<plugin>.<verb>.
func Storage(p Plugin, verb string) string { return "storage." + string(p) + "." + Encode(verb) }

// Guide returns the subject on which a plugin serves its guides: guide.<plugin>.
func Guide(p Plugin) string { return "guide." + string(p) }
