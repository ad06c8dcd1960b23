package email

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/emersion/go-imap/v2"

	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/mail/letter"
	"skandha.dev/services/internal/mail/mailstore"
	"skandha.dev/services/internal/text"
	"skandha.dev/services/toolrunner/tools"
)

type searchArgs struct {
	Account string `json:"account"`
	Folder  string `json:"folder"`
	From    string `json:"from"`
	To      string `json:"to"`
	Subject string `json:"subject"`
	Text    string `json:"text"`
	Since   string `json:"since"`
	Before  string `json:"before"`
	Unseen  bool   `json:"unseen"`
	Limit   int    `json:"limit"`
}

// found is what a search has found.
type found struct {
	Total   int       `json:"total"`  // matches
	Letters []summary `json:"emails"` // the newest, newest first
}

func (g *Group) search() tools.Tool {
	return tools.New(tool.Spec{
		Name: "email:search",
		Description: "Searches a mail folder and lists the newest matches first, without their text: read one with email:read. " +
			"All conditions must match; without conditions it lists the folder. from, to and subject match a part of the field, " +
			"text a part of the header or the text. Dates are those of arrival; before does not include its day.",
		Args: json.RawMessage(`{"type":"object","properties":{` + g.which() + `,` + whichFolder + `,
			"from":{"type":"string","maxLength":200},"to":{"type":"string","maxLength":200},
			"subject":{"type":"string","maxLength":200},"text":{"type":"string","maxLength":200},
			"since":{"type":"string","format":"date","description":"YYYY-MM-DD"},
			"before":{"type":"string","format":"date","description":"YYYY-MM-DD"},
			"unseen":{"type":"boolean"},"limit":{"type":"integer","minimum":1,"maximum":100,"default":20}},
			"additionalProperties":false}`),
		Idempotent: true, Risk: tool.RiskLow, Permissions: []string{permissionRead, permissionNetwork},
		ScenarioTags: []string{"information_retrieval", "communication"}, TimeoutMS: readTimeout.Milliseconds(),
	}, func(ctx context.Context, _ tools.Call, args searchArgs) tool.Result {
		out, err := g.find(ctx, args)
		if err != nil {
			return failure("searching e-mail", err)
		}
		return tool.OK(out)
	})
}

func (g *Group) find(ctx context.Context, args searchArgs) (found, error) {
	q := mailstore.Query{From: args.From, To: args.To, Subject: args.Subject, Text: args.Text, Unseen: args.Unseen}
	for _, d := range []struct {
		name, value string
		into        *time.Time
	}{{"since", args.Since, &q.Since}, {"before", args.Before, &q.Before}} {
		if d.value == "" {
			continue
		}
		var err error
		if *d.into, err = time.Parse(time.DateOnly, d.value); err != nil {
			return found{}, fmt.Errorf("%s is %q, want a date such as 2026-11-26", d.name, d.value)
		}
	}
	_, b, _, err := g.open(ctx, args.Account, args.Folder)
	if err != nil {
		return found{}, err
	}
	defer b.Close()
	uids, err := b.Search(q)
	if err != nil {
		return found{}, err
	}
	out := found{Total: len(uids)}
	slices.Reverse(uids)
	out.Letters, err = summaries(b, uids[:min(len(uids), args.Limit)])
	return out, err
}

// summaries describes letters, in the order of the UIDs.
func summaries(b *mailstore.Store, uids []uint32) ([]summary, error) {
	list, err := b.Summaries(uids)
	if err != nil {
		return nil, err
	}
	out := make([]summary, 0, len(list))
	for _, m := range list {
		out = append(out, summary{
			UID: m.UID, MessageID: m.Envelope.MessageID, From: addresses(m.Envelope.From), To: addresses(m.Envelope.To),
			Subject: line(m.Envelope.Subject), Received: m.Received.UTC().Format(time.RFC3339), Bytes: m.Size, Flags: m.Flags,
		})
	}
	return out, nil
}

// maxListed bounds the addresses of one letter in a list.
const maxListed = 10

func addresses(list []imap.Address) []string {
	out := make([]string, 0, len(list))
	for i, a := range list {
		if i == maxListed {
			return append(out, fmt.Sprintf("and %d more", len(list)-i))
		}
		if addr := line(a.Addr()); addr != "" && a.Name != "" {
			out = append(out, line(a.Name)+" <"+addr+">")
		} else if addr != "" {
			out = append(out, addr)
		}
	}
	return out
}

// maxLine bounds a field of a letter in a list, in bytes.
const maxLine = 300

func line(s string) string { return text.Cut(letter.Line(s), maxLine) }
