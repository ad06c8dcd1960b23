package email

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/mail"
	"strings"

	"skandha.dev/pkg/event"
	"skandha.dev/services/internal/mail/letter"
	"skandha.dev/services/internal/mail/post"
	"skandha.dev/services/internal/text"
)

// address says where the answer to a letter goes. It is what the core keeps as reply_to.
type address struct {
	To      string        `json:"to"`
	Subject string        `json:"subject,omitempty"`
	ID      string        `json:"id,omitempty"`   // of the letter
	Root    string        `json:"root,omitempty"` // of the thread's first letter
	Thread  letter.Thread `json:"thread"`
}

const maxReplySubject = 200 // bytes

// replyTo returns the address of the answer. A Reply-To counts only if it may wake the agent, too:
// an answer must not lead where the sender's own letters would be ignored.
func (l *Listener) replyTo(in *letter.Letter, thread letter.Thread) string {
	a := address{To: in.Sender(), Subject: text.Cut(in.Subject, maxReplySubject), ID: in.MessageID, Thread: thread}
	if len(in.ReplyTo) == 1 && l.cfg.admits(strings.ToLower(in.ReplyTo[0].Address)) {
		a.To = in.ReplyTo[0].Address
	}
	if root := append(append([]string{}, in.References...), in.InReplyTo...); len(root) > 0 {
		a.Root = root[0]
	}
	for _, shorten := range []func(){
		func() {}, func() { a.Root = "" }, func() { a.Subject = "" }, func() { a.ID = "" },
	} {
		shorten()
		if s := encode(a); len(s) <= event.MaxReplyTo {
			return s
		}
	}
	return "" // the address alone is too long to be one
}

func encode(a address) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(a); err != nil {
		panic(err) // cannot happen: it consists of strings
	}
	return strings.TrimSpace(b.String())
}

// noticeSubject is the subject of a letter that answers none.
const noticeSubject = "Message from the agent"

// draft returns the letter that goes to an address: that of an answer, or that of a person.
func draft(to, words string) (post.Draft, error) {
	if one, err := mail.ParseAddress(to); err == nil && one.Address == to {
		return post.Draft{To: []string{to}, Subject: noticeSubject, Text: words, Kind: post.Generated}, nil
	}
	var a address
	if err := json.Unmarshal([]byte(to), &a); err != nil || a.To == "" {
		return post.Draft{}, fmt.Errorf("%.100q is neither where an answer to an e-mail goes nor an address", to)
	}
	d := post.Draft{
		To: []string{a.To}, Subject: letter.ReplySubject(a.Subject), Text: words, InReplyTo: a.ID, Thread: a.Thread, Kind: post.Replied,
	}
	if a.Root != "" {
		d.References = []string{a.Root}
	}
	return d, nil
}
