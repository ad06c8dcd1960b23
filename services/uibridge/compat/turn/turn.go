// Package turn follows sessions, and one input from its submission to its end, for transports
// whose protocol is a request with one answer: a run of AG-UI, a chat completion, a prompt of ACP.
//
// A [Turn] attaches to the session before it sends the input, so that nothing of the turn is
// missed, and skips notifications of other turns. If a feed does not keep up, it attaches
// again after the last id it saw; only deltas are lost then. An input whose id was used
// before is not accepted again: instead, the earlier turn is replayed from the log from its
// beginning, and followed to its end if it still runs.
package turn

import (
	"context"
	"errors"
	"io"
	"strconv"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	input "skandha.dev/services/internal/turn"
	"skandha.dev/services/uibridge/contract"
)

// Turn follows one input. It is not safe for concurrent use.
type Turn struct {
	Session
	// Receipt is the input's receipt, after Submit.
	Receipt contract.Receipt
	// Replayed reports, after Submit, that the input was accepted before, and its turn is
	// replayed from its beginning.
	Replayed bool

	id       string // of the turn; "" for a command, or if not known yet
	sequence uint64 // of the input; 0: unknown
	seek     string // id of the input whose turn is searched for in the log
	over     bool
}

// Attach attaches to a session, after the id of a notification, or "" for new ones only.
// The transport's name is for logs. The feed ends with ctx, or with Close.
func Attach(
	ctx context.Context, b contract.Backend, p contract.Principal, ref subject.Ref, after, transport string,
) (*Turn, error) {
	s, err := AttachSession(ctx, b, p, ref, after, transport)
	if err != nil {
		return nil, err
	}
	return &Turn{Session: *s}, nil
}

// Submit sends the input whose turn is followed. Once it is sent, it continues even if the
// caller stops waiting.
func (t *Turn) Submit(ctx context.Context, in contract.Submission) error {
	in.Ref = t.ref
	r, err := t.backend.Submit(context.WithoutCancel(ctx), t.principal, in)
	if err != nil {
		return err
	}
	t.Receipt, t.sequence, t.id = r, r.Sequence, r.Turn
	if r.Sequence <= CommitOf(t.after) { // the same input was acknowledged before, perhaps to another request
		t.Replayed = true
		return t.attach(ctx, "0")
	}
	return nil
}

// Follow follows a turn by its id, also one that has not begun, instead of one that is submitted.
func (t *Turn) Follow(id string) { t.id, t.sequence = id, input.SequenceOf(id) }

// Next returns the next notification, and the id of its place in the log if it has one. The
// value is a pointer to one of the contract's types. The last one is [contract.TurnEnd];
// after that the error is [io.EOF]. Next returns [contract.Attached] if the input turns out
// to have been accepted before; its turn is then replayed from its beginning.
func (t *Turn) Next(ctx context.Context) (v any, id string, err error) {
	for !t.over {
		v, id, err := t.Session.Next(ctx)
		if err != nil {
			return nil, "", err
		}
		switch mine, before := t.mine(v); {
		case before:
			err := t.attach(ctx, "0")
			a := t.Attached
			return &a, "", err
		case mine:
			return v, id, nil
		}
	}
	return nil, "", io.EOF
}

// mine reports whether the notification belongs to the turn, and notes the turn's end.
// Before reports that the input was accepted earlier, so that its turn must be searched
// for.
func (t *Turn) mine(v any) (mine, before bool) {
	if t.seek != "" {
		return t.found(v), false
	}
	switch v := v.(type) {
	case *contract.Input:
		return v.Sequence == t.sequence, false
	case *contract.TurnEnd:
		return t.end(v)
	case *contract.Message:
		// A command's answer belongs to no turn.
		return t.of(v.About) || t.id == "" && v.Cause != "" && v.Cause == strconv.FormatUint(t.sequence, 10), false
	}
	about, ok := v.(interface{ Of() contract.About })
	return ok && t.of(about.Of()), false
}

func (t *Turn) of(a contract.About) bool { return t.id != "" && a.Turn == t.id }

func (t *Turn) end(v *contract.TurnEnd) (mine, before bool) {
	if sequenceOf(v) != t.sequence && !t.of(v.About) {
		return false, false
	}
	if v.Failed != nil && v.Failed.Code == event.FailDuplicate && t.Receipt.ID != "" {
		t.seek = t.Receipt.ID
		return false, true
	}
	t.over = true
	return true, false
}

// found searches for the input that was accepted earlier under the id, and whose turn is
// replayed. It precedes the refused one in the log.
func (t *Turn) found(v any) bool {
	switch v := v.(type) {
	case *contract.Input:
		if v.InputID != t.seek || v.Writer != t.principal.Writer {
			return false
		}
		t.seek, t.sequence = "", v.Sequence
		if t.id != "" {
			t.id = event.TurnID(v.Sequence)
		}
		return true
	case *contract.TurnEnd: // the log no longer contains it
		t.over = sequenceOf(v) == t.sequence
		return t.over
	}
	return false
}

func sequenceOf(v *contract.TurnEnd) uint64 {
	return input.End{Recorded: v.Recorded, Failed: v.Failed}.Sequence()
}

// Each calls each with every notification, and with the id of its place in the log if it
// has one. It calls idle whenever nothing has happened for wait. It returns when the turn
// or ctx ends or one of the functions fails. The error is nil after the turn's end.
func (t *Turn) Each(
	ctx context.Context, wait time.Duration, each func(v any, id string) error, idle func() error,
) error {
	// ctx itself is checked: a context derived from it may end later, and maybe later than
	// the feed.
	reading, cancel := context.WithCancel(ctx)
	type item struct {
		v  any
		id string
	}
	items, over, stopped := make(chan item), make(chan error, 1), make(chan struct{})
	defer func() { cancel(); <-stopped }()
	go func() {
		defer close(stopped)
		for {
			v, id, err := t.Next(reading)
			if err != nil {
				over <- err
				return
			}
			select {
			case items <- item{v, id}:
			case <-reading.Done():
				return
			}
		}
	}()
	timer := time.NewTicker(wait)
	defer timer.Stop()
	for {
		var err error
		select {
		case i := <-items:
			err = each(i.v, i.id)
			timer.Reset(wait)
		case <-timer.C:
			err = idle()
		case err = <-over:
			switch {
			case errors.Is(err, io.EOF):
				return nil
			case ctx.Err() != nil:
				return context.Cause(ctx) // more specific
			}
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err != nil {
			return err
		}
	}
}
