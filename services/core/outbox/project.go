package outbox

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/secret"
	"skandha.dev/services/internal/text"
)

// noAnswer is delivered instead of an empty answer.
const noAnswer = "(The agent gave no answer.)"

// maxText is the maximum length of a message, in bytes.
const maxText = 64 << 10

// project makes entries of what a commit has to deliver, and cancels the tasks of other sessions that
// ended with it. A cancel that is repeated has no effect.
func (o *Outbox) project(ctx context.Context, ref subject.Ref, seq uint64) error {
	c, err := o.commit(ctx, ref, seq)
	if err != nil {
		return err
	}
	for _, e := range c.Events {
		for _, t := range stops(e) {
			if err := o.cfg.Caller.Cancel(ctx, t); err != nil {
				return fmt.Errorf("cancelling the task %s of %s: %w", t.InputID, t.Ref, err)
			}
		}
	}
	all, err := o.messages(ctx, ref, seq, c)
	for _, e := range all {
		if err == nil {
			err = o.add(ctx, e)
		}
	}
	return err
}

// stops returns the tasks of other sessions that end with an event.
func stops(e event.Event) (tasks []event.Task) {
	_ = event.Visitor{ // what cannot be read stops nothing
		TurnFailed:    func(p event.TurnFailed) { tasks = p.Stops },
		SessionReset:  func(p event.SessionReset) { tasks = p.Stops },
		SessionLocked: func(p event.SessionLocked) { tasks = p.Stops },
	}.Visit(e)
	return tasks
}

// commit reads an outgoing commit. One that was purged, or that cannot be read, has no events.
func (o *Outbox) commit(ctx context.Context, ref subject.Ref, seq uint64) (c event.Commit, err error) {
	m, err := o.cfg.Bus.Message(ctx, seq)
	if errors.Is(err, bus.ErrNotFound) {
		return c, nil
	}
	if err != nil {
		return c, err
	}
	if c, err = event.DecodeCommit(ref, m.Data); err != nil {
		o.cfg.Log.Error("a commit cannot be read; what it delivers is lost", "session", ref, "commit", seq, "error", err)
		return event.Commit{}, nil
	}
	return c, nil
}

// messages returns what a commit has to deliver.
func (o *Outbox) messages(ctx context.Context, ref subject.Ref, seq uint64, c event.Commit) (out []entry, err error) {
	for n, e := range c.Events {
		input, d := delivery(e)
		if input == 0 {
			continue
		}
		d.Link = o.link(ref)
		all := o.notices(ref, e, d)
		answer, err := o.answer(ctx, ref, input, d, after(e))
		if err != nil {
			return nil, err
		}
		if answer != nil {
			all = append(all, *answer)
		}
		for _, one := range all {
			one.id = newID(one.Via, one.Delivery.To, seq, n)
			out = append(out, one)
		}
	}
	return out, nil
}

// maxListener is how much of the bucket the messages of one listener take, in bytes: a listener that
// does not run must not stop the others. What is beyond is given up, without its text.
const maxListener = 32 << 20

// full reports whether no more messages of a listener are kept.
func (o *Outbox) full(via subject.Writer) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.sizes[via] > o.limit
}

// restore reads the text of a message that was omitted.
func (o *Outbox) restore(ctx context.Context, e *entry) error {
	c, err := o.commit(ctx, e.Ref, commitOf(e.id))
	if err != nil {
		return err
	}
	all, err := o.messages(ctx, e.Ref, commitOf(e.id), c)
	if err != nil {
		return err
	}
	for _, m := range all {
		if m.id == e.id {
			e.Delivery, e.Omitted = m.Delivery, false
			return nil
		}
	}
	return bus.Errorf(bus.CodeNotFound, "the log no longer has the text of message %q", e.id)
}

// delivery returns what an event delivers, and the sequence of the input that it is about; 0: nothing.
func delivery(e event.Event) (input uint64, d tool.Delivery) {
	err := event.Visitor{
		Recorded: func(p event.Recorded) {
			if p.Joined != "" { // the turn's end is delivered
				return
			}
			input, d = p.Sequence, tool.Delivery{
				Kind: tool.KindAnswer, Text: cmp.Or(p.Answer, noAnswer), InReplyTo: p.InputID,
			}
		},
		TurnFailed: func(p event.TurnFailed) {
			if p.Code.Delivered() {
				input, d = p.Sequence, tool.Delivery{
					Kind: tool.KindFailure, Text: "This could not be answered: " + p.Reason, InReplyTo: p.InputID,
				}
			}
		},
		ToolCallRequest: func(p event.ToolCallRequest) {
			input, d = event.SequenceOf(p.ConfirmationID), tool.Delivery{Kind: tool.KindApproval, Text: question(p), Approval: asked(p)}
		},
	}.Visit(e)
	if err != nil {
		return 0, d
	}
	if input > 0 {
		d.Turn, d.Text = event.TurnID(input), text.Cut(d.Text, maxText)
	}
	return input, d
}

func asked(p event.ToolCallRequest) *tool.Approval {
	a := &tool.Approval{
		ConfirmationID: p.ConfirmationID, Hash: p.Hash, Tool: p.ToolName, Args: p.Args, ExpiresAt: p.ExpiresAt,
	}
	if p.SecurityWarning != nil {
		a.Warning = p.SecurityWarning.Message
	}
	if p.Approval != nil {
		a.Needs = p.Approval.Needs()
	}
	return a
}

// maxShownArgs is how much of the arguments of a call a question shows, in bytes.
const maxShownArgs = 2 << 10

// question is read outside: on push servers, in mailboxes.
func question(p event.ToolCallRequest) string {
	args := text.Cut(secret.Hide(p.Args), maxShownArgs)
	q := fmt.Sprintf("May I run `%s` with these arguments?\n\n```\n%s\n```", p.ToolName, args)
	if p.SecurityWarning != nil {
		q += "\n\n" + secret.HideText(p.SecurityWarning.Message)
	}
	if p.Approval != nil {
		q += "\n\nThe rules of this agent say: " + p.Approval.Needs() + "."
	}
	return q
}

// destination returns the listener that delivers, and where to. Answers to what an agent has
// scheduled go where those of the turn went that scheduled it: only core writes these inputs, and
// they name the listener before a colon.
func destination(writer subject.Writer, replyTo string) (via subject.Writer, to string, ok bool) {
	if writer != subject.ScheduleWriter {
		return writer, replyTo, true
	}
	name, to, _ := strings.Cut(replyTo, ":")
	via, err := subject.Parse[subject.Writer](name)
	return via, to, err == nil && to != ""
}

// after returns what a request for approval names as read from outside.
func after(e event.Event) (labels []string) {
	_ = event.Visitor{ToolCallRequest: func(p event.ToolCallRequest) { labels = p.After }}.Visit(e) // delivery has read it
	return labels
}

// strange reports whether an input is not a user's: its origin or its source says so, or what the
// request for approval names.
func strange(in event.Input, w subject.Writer, after []string) bool {
	return event.Outside(in.Origin, in.Source) != "" || slices.Contains(after, "listener:"+string(w))
}

// answer returns the message for the listener of an input; nil if it wants none. A stranger is not
// asked for approval: the question shows the arguments, and how to answer it.
func (o *Outbox) answer(
	ctx context.Context, ref subject.Ref, input uint64, d tool.Delivery, after []string,
) (*entry, error) {
	m, err := o.cfg.Bus.Message(ctx, input)
	if errors.Is(err, bus.ErrNotFound) {
		o.cfg.Log.Warn("an input is no longer stored; its answer is not delivered", "session", ref, "input", input)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	cause, err := subject.ParseCause(m.Subject)
	if err != nil || cause.Ref != ref || cause.Kind != subject.Input {
		return nil, nil //nolint:nilerr // it is no input
	}
	var in event.Input
	if err := event.DecodeCause(m.Data, &in); err != nil || in.ReplyTo == "" {
		return nil, nil //nolint:nilerr // it says nothing about its answer
	}
	if d.Kind == tool.KindApproval && strange(in, cause.Writer, after) {
		return nil, nil
	}
	via, to, ok := destination(cause.Writer, in.ReplyTo)
	if !ok {
		o.cfg.Log.Warn("the answer to a scheduled input has no valid destination", "session", ref, "input", input)
		return nil, nil
	}
	d.To = to
	return &entry{Ref: ref, Via: via, Delivery: d}, nil
}

// add stores an entry, unless there was one.
func (o *Outbox) add(ctx context.Context, e entry) error {
	e.Key, e.State, e.Stored = nonce(), coreapi.OutboxWaiting, o.now().UTC()
	if o.full(e.Via) {
		e.State, e.Omitted, e.Delivery.Text, e.Delivery.Approval = coreapi.OutboxDead, true, "", nil
		e.Error = fmt.Sprintf("messages for %s take more than %d MiB; the text is in session %s", e.Via, o.limit>>20, e.Ref)
	}
	value, err := json.Marshal(e)
	if err != nil {
		return err
	}
	_, err = o.bucket.Put(ctx, e.id, value, journal.Fence{})
	if errors.Is(err, bus.ErrFenceLost) {
		return nil // it exists, or was delivered
	}
	return err
}
