package email

import (
	"context"
	"errors"
	"strings"
	"time"

	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/mail/post"
	"skandha.dev/services/listener/contract"
)

var _ contract.Gateway = (*Listener)(nil)

// retryAfter is when a letter that the server refused for now is sent again, at the earliest. Greylisting
// takes some minutes, a server that is just starting some seconds.
const retryAfter = 30 * time.Second

// Deliver implements [contract.Gateway]. The letter goes into the thread of the one that it
// answers, or to the address that To consists of. An approval cannot be given by e-mail, as anybody
// can write a sender's address.
func (l *Listener) Deliver(ctx context.Context, m contract.Outgoing) tool.Result {
	d, err := draft(m.To, words(m.Delivery))
	if err != nil {
		return permanent(err)
	}
	out, err := post.Compose(l.account, m.Key, d, time.Now())
	if err != nil {
		return permanent(err)
	}
	attempt := l.attempts.Open(m.Attempt)
	note, err := l.sender.Send(ctx, l.account, out, func(ctx context.Context) error {
		if err := m.Begin(ctx); err != nil {
			return err
		}
		return attempt.Pass()
	})
	if !errors.Is(err, post.ErrUnknown) {
		attempt.Forget()
	}
	switch {
	case errors.Is(err, post.ErrUnknown):
		return tool.Failure(tool.CodeOutcomeUnknown, err.Error())
	case errors.Is(err, post.ErrRefused):
		return permanent(err)
	case errors.Is(err, post.ErrTemporary):
		r := tool.Failure(tool.CodeFailed, err.Error())
		r.Metadata = map[string]any{tool.MetadataRetryAfter: retryAfter.Milliseconds()}
		return r
	case err != nil:
		return tool.Failure(tool.CodeFailed, err.Error())
	}
	return delivered(out.ID, note)
}

// Probe implements [contract.Gateway].
func (l *Listener) Probe(ctx context.Context, m contract.Outgoing, b tool.Begun) tool.Result {
	if l.attempts.Close(b.Attempt) {
		return tool.Failure(tool.CodeNotRun, "the process that sent the letter ended before its last line; it was not sent")
	}
	d, err := draft(m.To, "")
	if err != nil {
		return tool.Failure(tool.CodeOutcomeUnknown, err.Error())
	}
	id, err := l.sender.Probe(ctx, l.account, m.Key, d.Thread)
	if err != nil {
		return tool.Failure(tool.CodeOutcomeUnknown, err.Error())
	}
	return delivered(id, "")
}

func delivered(id, note string) tool.Result {
	data := map[string]string{"message_id": id}
	if note != "" {
		data["note"] = note
	}
	return tool.OK(data)
}

// permanent returns the failure of a delivery that a repetition cannot mend.
func permanent(err error) tool.Result {
	r := tool.Failure(tool.CodeFailed, err.Error())
	r.Metadata = map[string]any{tool.MetadataPermanent: true}
	return r
}

// words returns the text of a letter.
func words(m tool.Delivery) string {
	parts := []string{m.Text}
	if m.Kind == tool.KindApproval {
		parts = append(parts, "This cannot be approved by e-mail. Answer on the page, or in a chat with the agent.")
	}
	if m.Link != "" {
		parts = append(parts, m.Link)
	}
	return strings.Join(parts, "\n\n")
}
