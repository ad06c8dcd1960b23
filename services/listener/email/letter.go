package email

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/mail"
	"skandha.dev/services/internal/mail/letter"
	"skandha.dev/services/internal/mail/mailstore"
	"skandha.dev/services/internal/mail/post"
	"skandha.dev/services/internal/text"
	"skandha.dev/services/listener/contract"
)

// handle makes an input of a letter, or ignores it, and records that.
func (l *Listener) handle(ctx context.Context, b *mailstore.Store, p *position, uid uint32) error {
	m, err := b.Fetch(uid, letter.DefaultLimits())
	if errors.Is(err, mailstore.ErrGone) {
		p.UID = uid
		return l.save(ctx, p)
	}
	if err != nil {
		return err
	}
	in := letter.Parse(m.Raw, m.Size, letter.DefaultLimits())
	if p.repeated(m.Received, in.MessageID) {
		p.UID = uid
		return l.save(ctx, p)
	}
	if why := l.unwanted(in); why != "" {
		l.stats.Ignored.Add(1)
		l.log.Info("a letter was ignored", "uid", uid, "from", in.Sender(), "reason", why)
	} else if err := l.store(ctx, b, p.UIDValidity, uid, in); err != nil {
		return err
	}
	p.handled(uid, m.Received, in.MessageID)
	return l.save(ctx, p)
}

// tidyAfter is how long a copy of a sent letter is left to the process that sent it.
const tidyAfter = time.Minute

// tidy moves copies of sent letters out of the inbox that their senders have left there, because
// they died. If both moved one at the same time, there would be two.
func (l *Listener) tidy(b *mailstore.Store) error {
	if l.account.Sent != mail.SentCopy || l.cfg.Folder != mailstore.Inbox {
		return nil
	}
	uids, err := b.Search(mailstore.Query{MessageIDPart: letter.OwnPart(l.account.Address)})
	if err != nil || len(uids) == 0 {
		return err
	}
	found, err := b.Summaries(uids)
	if err != nil {
		return err
	}
	var old []uint32
	for _, m := range found {
		if time.Since(m.Received) > tidyAfter && letter.Ours(m.Envelope.MessageID, l.account.Address) {
			old = append(old, m.UID)
		}
	}
	if len(old) == 0 {
		return nil
	}
	sent, err := b.Sent()
	if err != nil {
		return err
	}
	return post.File(b, l.account, old, sent)
}

// unwanted returns why a letter does not wake the agent; "" if it does.
func (l *Listener) unwanted(in *letter.Letter) string {
	if why := in.Loops(l.account.Address, l.cfg.Lists); why != "" {
		return why
	}
	switch {
	case in.Sender() == "":
		return "it has no single sender"
	case !l.cfg.admits(in.Sender()):
		return "from does not admit the sender"
	case l.cfg.AuthServer != "" && in.Authentication(l.cfg.AuthServer) != letter.Passed:
		return "the server " + l.cfg.AuthServer + " did not verify the sender (DMARC)"
	}
	return ""
}

// store emits the input of a letter. When it returns nil, the log has it, or never will.
func (l *Listener) store(ctx context.Context, b *mailstore.Store, validity, uid uint32, in *letter.Letter) error {
	id := fmt.Sprintf("%d-%d", validity, uid)
	thread := in.Thread(l.account.Address, id)
	ref := subject.Ref{Agent: subject.Agent(l.cfg.Agent), Session: subject.Session("mail-" + string(thread))}
	if l.cfg.Session != "" {
		ref.Session = subject.Session(l.cfg.Session)
	}
	files, listed, err := l.keep(ctx, ref, id, in)
	if err != nil {
		return err
	}
	_, err = l.emitter.EmitInput(ctx, contract.Input{
		Agent: ref.Agent, Session: ref.Session, Text: l.words(in, listed), ID: id,
		Source: text.Cut("email:"+l.account.Address, maxSource), Mode: l.cfg.Mode,
		Origin: origin(in.Sender()), From: l.verified(in), Files: files, ReplyTo: l.replyTo(in, thread),
	})
	switch {
	case errors.Is(err, contract.ErrInvalid):
		l.stats.Invalid.Add(1)
		l.log.Error("a letter cannot become an input; it is skipped", "uid", uid, "from", in.Sender(), "error", err)
		return nil
	case err != nil:
		return err
	}
	l.stats.Stored.Add(1)
	return l.mark(b, uid)
}

// verified returns the sender, if the receiving server has verified it.
func (l *Listener) verified(in *letter.Letter) string {
	if l.cfg.AuthServer == "" {
		return ""
	}
	return in.Sender()
}

// maxSource bounds the name of the source, in bytes.
const maxSource = 200

func origin(sender string) event.Origin {
	return event.Origin(text.Cut("email:"+sender, event.MaxOrigin-len("…")))
}

// mark does with a stored letter what the configuration says.
func (l *Listener) mark(b *mailstore.Store, uid uint32) error {
	if l.cfg.MarkSeen {
		if err := b.Seen(uid); err != nil {
			return err
		}
	}
	if l.cfg.MoveTo != "" {
		return b.Move(uid, l.cfg.MoveTo)
	}
	return nil
}

// keep stores the attachments as artifacts. Listed are all of them, for people and the model; files
// are those that the input names.
func (l *Listener) keep(ctx context.Context, ref subject.Ref, id string, in *letter.Letter) (files []provider.File, listed []string, err error) {
	for i, a := range in.Files {
		name := fmt.Sprintf("%s/%s/uploads/%s-%d-%s", ref.Agent, ref.Session, id, i+1, a.Name)
		f := provider.File{Ref: name, Name: a.Name, MediaType: a.MediaType, Bytes: int64(len(a.Content))}
		if f.Check() != nil {
			f.MediaType = "application/octet-stream"
		}
		line := fmt.Sprintf("%s (%s, %d bytes)", a.Name, f.MediaType, f.Bytes)
		err := l.bus.PutArtifact(ctx, name, a.Content)
		switch {
		case errors.Is(err, bus.ErrTooLarge):
			listed = append(listed, line+": not stored: "+err.Error())
			continue
		case err != nil:
			return nil, nil, fmt.Errorf("storing an attachment: %w", err)
		}
		listed = append(listed, line+": "+name)
		if len(files) < event.MaxInputFiles && f.Check() == nil {
			files = append(files, f)
		}
	}
	return files, listed, nil
}

// words returns the text of the input.
func (l *Listener) words(in *letter.Letter, listed []string) string {
	var w strings.Builder
	line := func(name string, values ...string) {
		if v := strings.Join(values, ", "); v != "" {
			fmt.Fprintf(&w, "%s: %s\n", name, text.Cut(v, 2<<10))
		}
	}
	line("E-mail from", letter.FormatAll(in.From)...)
	line("To", letter.FormatAll(in.To)...)
	line("Cc", letter.FormatAll(in.Cc)...)
	line("Subject", in.Subject)
	if !in.Date.IsZero() {
		line("Date", in.Date.Format(time.RFC3339))
	}
	if l.cfg.AuthServer == "" {
		line("Note", "the sender's address was not verified")
	}
	for _, n := range in.Notes {
		line("Note", n)
	}
	for _, a := range listed {
		line("Attachment", a)
	}
	w.WriteString("\n" + in.Text)
	return text.Cut(strings.TrimSpace(w.String()), event.MaxTextBytes-len("…"))
}
