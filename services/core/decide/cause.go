package decide

import (
	"fmt"
	"slices"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/text"
)

// OnCause decides about the cause c while the core holds the delivery with that
// sequence. A nil decision means that the cause permanently has no effect (rule 5);
// reason then says why. closings must hold an entry for each call that [MustClose]
// returns.
func OnCause(s *State, delivery uint64, c Cause, closings Closings, env *Env) (d *Decision, reason string) {
	if c.Sequence <= s.Cursor {
		return nil, "already processed"
	}
	b := start(s, delivery, event.Trigger{
		Kind: event.ByCause, Sequence: c.Sequence, Cause: c.Kind, Writer: c.Writer,
	}, c.Time, env)
	b.head.Cursor = c.Sequence
	x := &causeDecider{builder: b, c: c, closings: closings}
	switch c.Kind {
	case subject.Input:
		x.input()
	case subject.Command:
		x.command()
	case subject.Cancel:
		reason = x.cancel()
	case subject.Confirmation:
		reason = x.confirmation()
	case subject.Timer:
		reason = x.timer()
	default:
		x.fail(event.FailUnknownCause, fmt.Sprintf("unknown cause kind %q; want one of %v", c.Kind, subject.CauseKinds()))
	}
	if reason != "" {
		return nil, text.Cut(reason, maxReason)
	}
	return b.done(), ""
}

// Bounds, in bytes, of what a sender may add to the text.
const (
	maxReason = 1000
	maxSource = 256
)

type causeDecider struct {
	*builder
	c        Cause
	inputID  string // set by the sender; empty until read
	closings Closings
}

// fail ends the cause itself at once, with its one terminal event. It bounds the
// reason, which may quote what was sent.
func (x *causeDecider) fail(code event.FailCode, reason string) {
	reason = text.Cut(reason, maxReason)
	ask(x.builder, hook.OnError, "", hook.ErrorData{Code: string(code), Message: reason})
	p := event.TurnFailed{Sequence: x.c.Sequence, InputID: x.inputID, Code: code, Reason: reason}
	if code == event.FailLocked {
		p.Until = x.s.Breaker.Until
	}
	x.emit(p)
	x.ready = true
}

func readInput(body []byte) (event.Input, error) {
	var in event.Input
	if err := event.DecodeCause(body, &in); err != nil {
		return event.Input{}, err
	}
	in.Source = text.Cut(in.Source, maxSource)
	return in, in.Check()
}

func (x *causeDecider) input() {
	in, err := readInput(x.c.Body)
	if err != nil {
		x.fail(event.FailMalformed, err.Error())
		return
	}
	x.inputID = in.ID
	if x.env.Agent == nil {
		x.fail(event.FailUnknownAgent, fmt.Sprintf("unknown agent %q", x.s.Ref.Agent))
		return
	}
	if seq, dup := x.s.seen(x.c.Writer, in.ID); dup {
		x.fail(event.FailDuplicate, fmt.Sprintf("duplicate input id %q from %s; first used at sequence %d",
			in.ID, x.c.Writer, seq))
		return
	}
	if x.s.lockedAt(x.head.Now) {
		x.fail(event.FailLocked, x.s.LockedWhy())
		return
	}
	waits := x.s.Turn != nil && in.Mode != event.ModeInterrupt
	if waits && len(x.s.Queue) >= x.agent().Limits.Queue {
		x.fail(event.FailQueueFull, fmt.Sprintf("%d inputs are already waiting", len(x.s.Queue)))
		return
	}
	p := event.Perceived{
		Sequence: x.c.Sequence, InputID: in.ID, Writer: x.c.Writer, Source: in.Source, Text: in.Text,
	}
	if !x.sense(&p) {
		return
	}
	if waits {
		p.Disposition = event.Queued
		x.emit(p)
		return
	}
	if x.s.Turn != nil {
		x.closeTurn(event.FailInterrupted, "interrupted by a later input", x.closings, false)
	}
	x.startTurn(p)
}

// sense runs the hooks around a perception. False means that they ended the input.
func (x *causeDecider) sense(p *event.Perceived) bool {
	data := hook.SenseData{Text: p.Text, Source: p.Source, Writer: string(p.Writer)}
	d := ask(x.builder, hook.BeforeSense, "", data)
	switch d.Verb {
	case hook.DenyVerb:
		x.fail(event.FailDenied, d.Reason)
		return false
	case hook.Replace:
		if err := decodeInto(d.Data, &data); err == nil && data.Text != "" {
			p.Text = text.Cut(data.Text, event.MaxTextBytes)
		}
	}
	id := fmt.Sprint(p.Sequence)
	d = ask(x.builder, hook.AfterSense, "",
		hook.PerceptionsData{Perceptions: []hook.Perception{{ID: id, Text: p.Text, Source: p.Source}}})
	switch d.Verb {
	case hook.DenyVerb:
		x.fail(event.FailDenied, d.Reason)
		return false
	case hook.Replace:
		var all hook.PerceptionsData
		if err := decodeInto(d.Data, &all); err != nil {
			return true
		}
		i := slices.IndexFunc(all.Perceptions, func(q hook.Perception) bool { return q.ID == id })
		if i >= 0 && all.Perceptions[i].Drop {
			x.fail(event.FailDropped, "dropped by an after_sense hook")
			return false
		}
		if i >= 0 {
			p.Annotations = all.Perceptions[i].Annotations
		}
	}
	return true
}

func (x *causeDecider) cancel() string {
	var c event.Cancel
	if err := event.DecodeCause(x.c.Body, &c); err != nil {
		return err.Error()
	}
	if c.Sequence == 0 && c.InputID == "" {
		return "cancel names no input: set sequence or input_id"
	}
	why := "cancelled by " + string(x.c.Writer)
	if c.Reason != "" {
		why += ": " + text.Cut(c.Reason, maxReason)
	}
	if t := x.s.Turn; t != nil && names(c, x.c.Writer, t.Pending) {
		x.closeTurn(event.FailCancelled, why, x.closings, true)
		return ""
	}
	i := slices.IndexFunc(x.s.Queue, func(p Pending) bool { return names(c, x.c.Writer, p) })
	if i < 0 {
		return "no open input matches the cancel"
	}
	p := x.s.Queue[i]
	x.emit(event.TurnFailed{Sequence: p.Sequence, InputID: p.InputID, Code: event.FailCancelled, Reason: why})
	return ""
}

// names reports whether w's cancel names p. Each writer chooses its ids, so inputs of
// other writers with the same id do not match.
func names(c event.Cancel, w subject.Writer, p Pending) bool {
	if c.Sequence != 0 {
		return c.Sequence == p.Sequence
	}
	return c.InputID != "" && c.InputID == p.InputID && w == p.Writer
}

func (x *causeDecider) timer() string {
	var tm event.Timer
	if x.c.Writer != subject.TimerWriter {
		return "only core may write timers"
	}
	if err := event.DecodeCause(x.c.Body, &tm); err != nil {
		return err.Error()
	}
	st, why := x.pending(tm.ID)
	if why != "" {
		return why
	}
	x.touched = true
	x.expireRequest(st)
	x.advance()
	return ""
}
