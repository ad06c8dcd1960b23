package decide_test

import (
	"strings"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/turn"
)

// Helpers to read the log.

func (w *world) commits() []event.Commit {
	w.t.Helper()
	out := make([]event.Commit, len(w.log))
	for i, m := range w.log {
		c, err := event.DecodeCommit(ref, m.body)
		if err != nil {
			w.fail("commit %d: %v", m.seq, err)
		}
		out[i] = c
	}
	return out
}

func (w *world) last() event.Commit {
	w.t.Helper()
	all := w.commits()
	return all[len(all)-1]
}

// events decodes all events of a type in the log, oldest first.
func events[P any, PP interface {
	*P
	event.Payload
}](w *world) []P {
	w.t.Helper()
	var out []P
	for _, c := range w.commits() {
		for _, e := range c.Events {
			var p P
			if e.Type != PP(&p).EventType() {
				continue
			}
			if err := e.DataAs(PP(&p)); err != nil {
				w.fail("%v", err)
			}
			out = append(out, p)
		}
	}
	return out
}

// outcome returns how an input ended: "recorded", the code of its failure, or "" while it is open.
func (w *world) outcome(seq uint64) string {
	w.t.Helper()
	for _, p := range events[event.Recorded](w) {
		if p.Sequence == seq {
			return "recorded"
		}
	}
	for _, p := range events[event.TurnFailed](w) {
		if p.Sequence == seq {
			return string(p.Code)
		}
	}
	return ""
}

// inputOfEvent returns the sequence of the input that an event is about, by what the event itself
// says: the one that began its turn, or that it ends. 0: it is about none.
func inputOfEvent(e event.Event) uint64 {
	if e.Turn != "" {
		return event.SequenceOf(e.Turn)
	}
	return turn.EndOf(e).Sequence()
}

func (w *world) ends(seq uint64, want string) {
	w.t.Helper()
	if got := w.outcome(seq); got != want {
		w.fail("input %d ended as %q, want %q", seq, got, want)
	}
}

// resultOf returns the result of the latest call whose id has this suffix: "c0", "c1-s2".
func (w *world) resultOf(call string) tool.Result {
	w.t.Helper()
	all := events[event.ActCompleted](w)
	for i := len(all) - 1; i >= 0; i-- {
		if strings.HasSuffix(all[i].Call, "-"+call) {
			return all[i].Result
		}
	}
	w.fail("call %s has no result", call)
	return tool.Result{}
}

// code returns "ok", or the code of the result.
func (w *world) code(call string) tool.Code {
	w.t.Helper()
	if r := w.resultOf(call); !r.Success {
		return r.Error.Code
	}
	return "ok"
}

func (w *world) codes(want map[string]tool.Code) {
	w.t.Helper()
	for call, code := range want {
		if got := w.code(call); got != code {
			w.fail("call %s ended as %q, want %q", call, got, code)
		}
	}
}

// said returns the conversation that a model would see now.
func (w *world) said() []provider.Message {
	w.t.Helper()
	var r provider.Request
	for _, e := range w.state.Window {
		r.Messages = append(r.Messages, e.Msg)
	}
	out, err := r.Conversation()
	if err != nil {
		w.fail("%v", err)
	}
	return out
}
