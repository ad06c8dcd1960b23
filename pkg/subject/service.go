package subject

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ErrInvalidSubject is wrapped by every error about a subject that does not parse.
var ErrInvalidSubject = errors.New("invalid subject")

// ExecutorKind is what an executor instance executes.
type ExecutorKind string

// The kinds of executor.
const (
	Runner   ExecutorKind = "runner"   // runs tools; the sandbox service is one too
	Provider ExecutorKind = "provider" // asks language models
)

// Executor is where one executor instance is addressed: runner.<instance> or provider.<instance>.
func Executor(kind ExecutorKind, i Instance) string { return string(kind) + "." + string(i) }

// Announce is where an executor instance says what it offers: announce.<kind>.<instance>.
func Announce(kind ExecutorKind, i Instance) string {
	return "announce." + string(kind) + "." + string(i)
}

// AllAnnouncements matches the announcements of all executors.
const AllAnnouncements = "announce.*.*"

// Discover asks every executor of a kind to announce itself now: discover.<kind>.
func Discover(kind ExecutorKind) string { return "discover." + string(kind) }

// Service is where any one replica of a service answers questions about itself:
// service.<name>.<verb>, queue group = the name. The parts are literals of this code base.
func Service(name, verb string) string { return "service." + name + "." + verb }

// Reply is where a responder answers a caller: reply.<responder>.<caller>.<n>.
// A responder may publish under its own name only, so it can answer nobody else.
func Reply(responder string, caller Instance, n uint64) string {
	return "reply." + responder + "." + string(caller) + "." + strconv.FormatUint(n, 36)
}

// Replies matches every answer to a caller.
func Replies(caller Instance) string { return "reply.*." + string(caller) + ".*" }

// ParseReply splits reply.<responder>.<caller>.<n>.
func ParseReply(s string) (responder string, caller Instance, n uint64, err error) {
	t := strings.Split(s, ".")
	if len(t) != 4 || t[0] != "reply" || !Valid(t[1]) || !Valid(t[2]) {
		return "", "", 0, fmt.Errorf("%w: %q is no reply subject", ErrInvalidSubject, clip(s))
	}
	n, err = strconv.ParseUint(t[3], 36, 64)
	if err != nil || strconv.FormatUint(n, 36) != t[3] {
		return "", "", 0, fmt.Errorf("%w: %q is no reply subject", ErrInvalidSubject, clip(s))
	}
	return t[1], Instance(t[2]), n, nil
}

// IsReplyFrom reports whether s is a reply subject of responder: the only
// subjects it may answer on. Anything else is a confused deputy waiting to happen.
func IsReplyFrom(s, responder string) bool {
	r, _, _, err := ParseReply(s)
	return err == nil && r == responder
}

// Hook is where a plugin answers a hook point: hook.<point>.<plugin>.
func Hook(point string, p Plugin) string { return "hook." + Encode(point) + "." + string(p) }

// Tool is where a plugin runs one of its tools: tool.<plugin>.<encoded name>.
func Tool(p Plugin, name string) string { return "tool." + string(p) + "." + Encode(name) }

// Replica is the subject of one replica of a plugin, for what the plugin answers on
// subj: a [Tool] or [Generate]. It is <subj>.<instance>, without a queue group. A
// replica that listens there remembers its requests, so the same request may be sent
// to it again.
func Replica(subj string, i Instance) string { return subj + "." + string(i) }

// Generate is where a plugin answers as a language model: llm.<plugin>.generate.
func Generate(p Plugin) string { return "llm." + string(p) + ".generate" }

// Storage is where a plugin serves a storage verb: storage.<plugin>.<verb>.
func Storage(p Plugin, verb string) string { return "storage." + string(p) + "." + Encode(verb) }

// Guide is where a plugin serves its guide: guide.<plugin>.
func Guide(p Plugin) string { return "guide." + string(p) }
