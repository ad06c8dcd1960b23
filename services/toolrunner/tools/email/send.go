package email

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/mail"
	"skandha.dev/services/internal/mail/letter"
	"skandha.dev/services/internal/mail/post"
	"skandha.dev/services/internal/result"
	"skandha.dev/services/toolrunner/tools"
)

// sendTimeout is longer than what sending and filing may take.
const sendTimeout = 4 * time.Minute

type sendArgs struct {
	Account     string   `json:"account"`
	To          []string `json:"to"`
	Cc          []string `json:"cc"`
	Bcc         []string `json:"bcc"`
	Subject     string   `json:"subject"`
	Text        string   `json:"text"`
	ReplyTo     string   `json:"reply_to"`
	ReplyFolder string   `json:"reply_folder"`
	Attachments []string `json:"attachments"`
}

// sent is the result of sending.
type sent struct {
	MessageID string `json:"message_id"`
	Note      string `json:"note,omitempty"`
}

func (g *Group) send() tools.Tool {
	const people = `{"type":"array","maxItems":50,"items":{"type":"string","minLength":3,"maxLength":320}}`
	t := tools.New(tool.Spec{
		Name: "email:send",
		Description: "Sends an e-mail of plain text, to all recipients or to none. To answer an e-mail, set reply_to to its message_id, " +
			"so that the answer stays in the thread; the recipients must be named in any case. Attachments are artifacts of " +
			"this session, by their ref.",
		Args: json.RawMessage(`{"type":"object","properties":{` + g.which() + `,
			"to":` + people + `,"cc":` + people + `,"bcc":` + people + `,
			"subject":{"type":"string","maxLength":500,"description":"may be left out in an answer"},
			"text":{"type":"string","minLength":1,"maxLength":1000000},
			"reply_to":{"type":"string","maxLength":500,"description":"message_id of the e-mail that this one answers"},
			"reply_folder":{"type":"string","minLength":1,"maxLength":500,"default":"INBOX","description":"where that e-mail is"},
			"attachments":{"type":"array","maxItems":16,"items":{"type":"string","minLength":1,"maxLength":512}}},
			"required":["to","text"],"additionalProperties":false}`),
		Risk: tool.RiskHigh, Permissions: []string{permissionSend, permissionNetwork},
		ScenarioTags: []string{"communication", "task_execution"}, TimeoutMS: sendTimeout.Milliseconds(),
	}, g.sendOne)
	t.Probe = g.probe
	return t
}

func (g *Group) sendOne(ctx context.Context, c tools.Call, args sendArgs) tool.Result {
	a, err := g.accounts.Get(args.Account)
	if err != nil {
		return failure("sending an e-mail", err)
	}
	d, err := g.draft(ctx, c, args)
	if err != nil {
		return failure("sending an e-mail", err)
	}
	l, err := post.Compose(a, c.Key, d, time.Now())
	if err != nil {
		return failure("sending an e-mail", err)
	}
	attempt := g.attempts.Open(c.Attempt)
	note, err := g.sender.Send(ctx, a, l, func(ctx context.Context) error {
		if err := c.Begin(ctx); err != nil {
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
	case errors.Is(err, post.ErrTemporary):
		return failure("sending an e-mail", fmt.Errorf("%w; nothing was sent to anybody; try again later", err))
	case err != nil:
		return failure("sending an e-mail", fmt.Errorf("%w; nothing was sent to anybody", err))
	}
	return tool.OK(sent{l.ID, note})
}

// draft collects what is sent.
func (g *Group) draft(ctx context.Context, c tools.Call, args sendArgs) (post.Draft, error) {
	d := post.Draft{
		To: args.To, Cc: args.Cc, Bcc: args.Bcc, Subject: args.Subject, Text: args.Text, Kind: post.Generated,
	}
	if args.ReplyTo != "" {
		if err := g.answer(ctx, args, &d); err != nil {
			return d, err
		}
	}
	if d.Subject == "" {
		return d, errors.New("subject is empty; write one")
	}
	for _, ref := range args.Attachments {
		f, err := g.attach(ctx, c, ref)
		if err != nil {
			return d, err
		}
		d.Files = append(d.Files, f)
	}
	return d, nil
}

// answer puts a draft into the thread of the letter that it answers.
func (g *Group) answer(ctx context.Context, args sendArgs, d *post.Draft) error {
	a, b, _, err := g.open(ctx, args.Account, args.ReplyFolder)
	if err != nil {
		return err
	}
	defer b.Close()
	_, l, err := fetch(b, args.ReplyFolder, 0, args.ReplyTo)
	if err != nil {
		return fmt.Errorf("reading the e-mail that is answered: %w", err)
	}
	d.InReplyTo, d.Thread = l.MessageID, l.Thread(a.Address, l.MessageID)
	if d.References = l.References; len(d.References) == 0 {
		d.References = l.InReplyTo
	}
	if d.Subject == "" {
		d.Subject = letter.ReplySubject(l.Subject)
	}
	return nil
}

// attach reads an artifact of the call's session.
func (g *Group) attach(ctx context.Context, c tools.Call, ref string) (letter.File, error) {
	if !strings.HasPrefix(ref, string(c.Agent)+"/"+string(c.Session)+"/") || path.Clean(ref) != ref {
		return letter.File{}, fmt.Errorf("attachment %q is not an artifact of this session; use the ref that a result names", ref)
	}
	b, err := g.artifacts.GetArtifact(ctx, ref)
	if err != nil {
		return letter.File{}, fmt.Errorf("reading the attachment %q: %w", ref, err)
	}
	media := result.ShownAs(b[:min(len(b), result.Sniffed)])
	if media == "" {
		media = "application/octet-stream"
	}
	return letter.File{Name: path.Base(ref), MediaType: media, Content: b}, nil
}

// probe looks for the letter of an attempt that has begun.
func (g *Group) probe(ctx context.Context, c tools.Call, b tool.Begun) tool.Result {
	if g.attempts.Close(b.Attempt) {
		return tool.Failure(tool.CodeNotRun, "the process that sent the e-mail ended before its last line; it was not sent")
	}
	var args sendArgs
	if err := json.Unmarshal(c.Args, &args); err != nil {
		return tool.Failure(tool.CodeOutcomeUnknown, "reading the arguments: "+err.Error())
	}
	a, err := g.accounts.Get(args.Account)
	if err != nil {
		return tool.Failure(tool.CodeOutcomeUnknown, err.Error())
	}
	var d post.Draft
	if args.ReplyTo != "" {
		_ = g.answer(ctx, args, &d) // it may have been moved; then the thread is not known
	}
	id, err := g.sender.Probe(ctx, a, c.Key, d.Thread)
	if err != nil {
		return tool.Failure(tool.CodeOutcomeUnknown, unresolved(a, err))
	}
	return tool.OK(sent{MessageID: id})
}

func unresolved(a *mail.Account, err error) string {
	return fmt.Sprintf("it is not known whether the e-mail was sent: %v; look for it in the folder for sent mail of %s before it is sent again",
		err, a.Address)
}
