package decide

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/commands"
	"skandha.dev/services/internal/text"
)

// Cause is a message in the log that core has to decide about. [ReadCause] makes it.
type Cause struct {
	Sequence uint64
	Kind     subject.CauseKind
	Writer   subject.Writer
	Time     time.Time // the stream's

	says event.Payload // by its kind; nil if the kind is unknown
	err  error         // why says cannot be used
}

// ReadCause parses a cause. A body that is invalid is part of the cause: its decision
// says so.
func ReadCause(seq uint64, at subject.CauseSubject, stored time.Time, body []byte) Cause {
	c := Cause{Sequence: seq, Kind: at.Kind, Writer: at.Writer, Time: stored}
	switch at.Kind {
	case subject.Input:
		c.says, c.err = readInput(body)
	case subject.Command:
		c.says, c.err = readCommand(body)
	case subject.Cancel:
		var p event.Cancel
		c.err = event.DecodeCause(body, &p)
		c.says = p
	case subject.Confirmation:
		var p event.Confirmation
		c.err = event.DecodeCause(body, &p)
		c.says = p
	case subject.Timer:
		var p event.Timer
		c.err = event.DecodeCause(body, &p)
		c.says = p
	}
	return c
}

// Command returns the name of the command that the cause asks for, "" if it asks for none.
func (c Cause) Command() string {
	says, _ := c.says.(event.Command)
	return says.Name
}

func readInput(body []byte) (event.Input, error) {
	var in event.Input
	if err := event.DecodeCause(body, &in); err != nil {
		return event.Input{}, err
	}
	in.Source = text.Cut(in.Source, maxSource)
	return in, in.Check()
}

// readCommand checks the arguments of a command, if it is known. With an error about
// them it returns the command, too.
func readCommand(body []byte) (event.Command, error) {
	var c event.Command
	if err := event.DecodeCause(body, &c); err != nil {
		return event.Command{}, err
	}
	if len(c.ID) > event.MaxInputIDBytes {
		return event.Command{}, fmt.Errorf("%w: id has %d bytes, at most %d", event.ErrMalformed, len(c.ID),
			event.MaxInputIDBytes)
	}
	c.Name = strings.TrimPrefix(c.Name, "/")
	return c, commands.Check(c)
}

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
	switch says := c.says.(type) {
	case event.Input:
		x.input(says)
	case event.Command:
		x.command(says)
	case event.Cancel:
		reason = x.cancel(says)
	case event.Confirmation:
		reason = x.confirmation(says)
	case event.Timer:
		reason = x.timer(says)
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

func (x *causeDecider) input(in event.Input) {
	if x.c.err != nil {
		x.fail(event.FailMalformed, x.c.err.Error())
		return
	}
	x.inputID, x.replyTo = in.ID, in.ReplyTo
	if why := x.worksFor(in); why != "" {
		x.fail(event.FailMalformed, why)
		return
	}
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
	if i := slices.IndexFunc(in.Files, func(f provider.File) bool { return !f.In(x.s.Ref) }); i >= 0 {
		x.fail(event.FailMalformed, fmt.Sprintf("files[%d].ref is %q, want an artifact of this session: %s/<name>", i,
			in.Files[i].Ref, x.s.Ref))
		return
	}
	waits := x.s.Turn != nil && in.Mode != event.ModeInterrupt || x.s.Paused != nil
	if waits && len(x.s.Queue) >= x.agent().Limits.Queue {
		why := fmt.Sprintf("%d inputs are already waiting", len(x.s.Queue))
		if x.s.Paused != nil {
			why += "; the session is paused, and /resume continues it"
		}
		x.fail(event.FailQueueFull, why)
		return
	}
	p := event.Perceived{
		Sequence: x.c.Sequence, InputID: in.ID, Writer: x.c.Writer, Source: in.Source, Text: in.Text,
		Files: in.Files, Origin: in.Origin, From: in.From, ReplyTo: in.ReplyTo,
		Outside: x.env.Outside != nil && x.env.Outside(x.c.Writer), By: in.By,
		Steer: in.Mode == event.ModeSteer,
	}
	if !x.sense(&p) {
		return
	}
	if waits {
		p.Disposition = event.Queued
		x.emit(p)
		if x.s.Paused != nil {
			x.notices = append(x.notices, commands.Waits(x.s.Paused.By))
		}
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
			for _, a := range all.Perceptions[i].Annotations {
				p.Annotations = append(p.Annotations, lineEnds.Replace(a)) // no line of it looks like the user's
			}
		}
	}
	return true
}

func (x *causeDecider) cancel(c event.Cancel) string {
	if x.c.err != nil {
		return x.c.err.Error()
	}
	if c.Sequence == 0 && c.InputID == "" {
		return "cancel names no input: set sequence or input_id"
	}
	why := "cancelled by " + string(x.c.Writer)
	if c.Reason != "" {
		why += ": " + text.Cut(c.Reason, maxReason)
	}
	if t := x.s.Turn; t != nil && t.named(c, x.c.Writer) {
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

// named reports whether w's cancel names the input of the turn, or one that has joined it.
func (t *Turn) named(c event.Cancel, w subject.Writer) bool {
	return names(c, w, t.Pending) || slices.ContainsFunc(t.Joined, func(j JoinedInput) bool {
		return names(c, w, Pending{Sequence: j.Sequence, InputID: j.InputID, Writer: j.Writer})
	})
}

func (x *causeDecider) timer(tm event.Timer) string {
	if x.c.Writer != subject.TimerWriter {
		return "only core may write timers"
	}
	if x.c.err != nil {
		return x.c.err.Error()
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
