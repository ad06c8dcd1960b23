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

// Reply returns the subject on which a responder answers a caller:
// reply.<responder>.<caller>.<n>. A responder may publish only under its own name, so it can
// only answer requests to itself.
func Reply(responder string, caller Instance, n uint64) string {
	return "reply." + responder + "." + string(caller) + "." + strconv.FormatUint(n, 36)
}

// Replies returns a filter for all answers to a caller.
func Replies(caller Instance) string { return "reply.*." + string(caller) + ".*" }

// ParseReply parses reply.<responder>.<caller>.<n>.
func ParseReply(s string) (responder string, caller Instance, n uint64, err error) {
	t := strings.Split(s, ".")
	if len(t) != 4 || t[0] != "reply" || !Valid(t[1]) || !Valid(t[2]) {
		return "", "", 0, fmt.Errorf("%w: %q is not a reply subject", ErrInvalidSubject, clip(s))
	}
	n, err = strconv.ParseUint(t[3], 36, 64)
	if err != nil || strconv.FormatUint(n, 36) != t[3] {
		return "", "", 0, fmt.Errorf("%w: %q is not a reply subject", ErrInvalidSubject, clip(s))
	}
	return t[1], Instance(t[2]), n, nil
}

// IsReplyFrom reports whether s is a reply subject of responder, which are the only subjects
// it may answer on. Answers on other subjects would make it a confused deputy.
func IsReplyFrom(s, responder string) bool {
	r, _, _, err := ParseReply(s)
	return err == nil && r == responder
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
