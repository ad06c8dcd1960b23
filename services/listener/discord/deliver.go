package discord

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"skandha.dev/pkg/tool"
	"skandha.dev/services/listener/chat"
	"skandha.dev/services/listener/contract"
)

const (
	maxText  = 1900 // bytes of a message; Discord counts 2,000 characters
	maxParts = 8
	// enforced is how long Discord certainly recognizes a nonce ("the past few minutes").
	enforced  = 2 * time.Minute
	clockSkew = 5 * time.Minute // between the bus and Discord
	fresh     = 10 * time.Second
	pageSize  = 100
	maxPages  = 10
	// epoch is the zero of the time in ids, in milliseconds.
	epoch = 1420070400000
)

// noMentions lets no text of the agent notify anybody.
var noMentions = map[string]any{"parse": []string{}}

// nonce names a part of a delivery, in the 25 characters that Discord allows.
func nonce(key string, part int) string {
	sum := sha256.Sum256([]byte("discord " + strconv.Itoa(part) + " " + key))
	return hex.EncodeToString(sum[:12])
}

// sent is a message that is about to be delivered.
type sent struct {
	channel string
	key     string
	parts   []string
	code    string // of a request for approval
}

// prepare makes the message. It reports permanent if it can never be delivered.
func (g *Gateway) prepare(ctx context.Context, m contract.Outgoing) (s sent, permanent bool, err error) {
	c, ok, err := g.channel(ctx, m.To)
	if err != nil {
		return s, false, err
	}
	at := chat.Place{}
	if ok {
		at.Room, at.Thread, ok = g.place(c)
	}
	if ok && at.Room == "" {
		ok = g.cfg.Direct && len(c.Recipients) == 1
		if ok {
			at.Account = c.Recipients[0].ID
		}
	}
	if !ok {
		return s, true, fmt.Errorf("%q is neither a channel of listener %s nor a direct one", m.To, g.Name())
	}
	shown, err := g.Show(ctx, at, m)
	if err != nil {
		return s, false, err
	}
	s = sent{channel: c.ID, key: m.Key, parts: chat.Parts(strings.TrimSpace(shown.Text), maxText, maxParts), code: shown.Code}
	if len(s.parts) == 0 {
		return s, true, errors.New("the message has no text")
	}
	return s, false, nil
}

// Deliver implements [contract.Gateway].
func (g *Gateway) Deliver(ctx context.Context, m contract.Outgoing) tool.Result {
	g.sending.Lock()
	defer g.sending.Unlock()
	s, permanent, err := g.prepare(ctx, m)
	switch {
	case permanent:
		return chat.Permanent(err)
	case err != nil:
		return tool.Failure(tool.CodeFailed, err.Error())
	}
	if err := m.Begin(ctx); err != nil {
		return tool.Failure(tool.CodeFailed, err.Error())
	}
	return g.send(ctx, s)
}

// send sends all parts. Repeated within [enforced], it sends those that are missing.
func (g *Gateway) send(ctx context.Context, s sent) tool.Result {
	for i, part := range s.parts {
		var buttons any
		if s.code != "" && i == len(s.parts)-1 {
			buttons = approvalButtons(s.code)
		}
		err := g.post(ctx, s.channel, part, nonce(s.key, i), buttons)
		switch {
		case err != nil && i > 0:
			return tool.Failure(tool.CodeOutcomeUnknown, fmt.Sprintf("%d of %d parts were sent: %v", i, len(s.parts), err))
		case err != nil:
			return chat.Undelivered(err)
		}
	}
	return tool.OK(map[string]any{"to": s.channel, "parts": len(s.parts)})
}

func (g *Gateway) post(ctx context.Context, channel, text, nonce string, buttons any) error {
	in := map[string]any{
		"content": text, "nonce": nonce, "enforce_nonce": true, "allowed_mentions": noMentions, "flags": 1 << 2, // no previews of links
	}
	if buttons != nil {
		in["components"] = buttons
	}
	var made message
	err := g.call(ctx, http.MethodPost, "/channels/"+channel+"/messages", in, &made)
	if err == nil && made.ID == "" {
		err = errors.New("the answer names no message")
	}
	return err
}

func approvalButtons(code string) any {
	button := func(style int, label, id string) map[string]any {
		return map[string]any{"type": 2, "style": style, "label": label, "custom_id": id}
	}
	const green, red = 3, 4
	return []any{map[string]any{"type": 1, "components": []any{button(green, "Approve", "yes "+code), button(red, "Deny", "no "+code)}}}
}

// Probe implements [contract.Gateway].
func (g *Gateway) Probe(ctx context.Context, m contract.Outgoing, b tool.Begun) tool.Result {
	g.sending.Lock()
	defer g.sending.Unlock()
	s, _, err := g.prepare(ctx, m)
	if err != nil {
		return tool.Failure(tool.CodeOutcomeUnknown, err.Error())
	}
	if time.Since(b.At) < enforced {
		r := g.send(ctx, s)
		if !r.Success && r.Error.Code != tool.CodeOutcomeUnknown { // this request was refused; the earlier one may not have been
			r = tool.Failure(tool.CodeOutcomeUnknown, r.Error.Message)
		}
		return r
	}
	found, err := g.find(ctx, s, b.At)
	switch {
	case err != nil:
		return tool.Failure(tool.CodeOutcomeUnknown, "the channel cannot be read: "+err.Error())
	case found == 0 && time.Since(b.Until) > time.Minute:
		return tool.Failure(tool.CodeNotRun, "the channel does not have the message, and the request that would send it has ended")
	case found == len(s.parts):
		return tool.OK(map[string]any{"to": s.channel, "parts": found, "found_in_channel": true})
	}
	return tool.Failure(tool.CodeOutcomeUnknown, fmt.Sprintf("%d of %d parts are in the channel", found, len(s.parts)))
}

// find counts the parts that the bot has sent to the channel, by their text, as Discord does not keep
// nonces. Messages to a channel leave in order, so that no later one is taken for it; an equal one from
// shortly before is an error.
func (g *Gateway) find(ctx context.Context, s sent, since time.Time) (found int, err error) {
	var bot user
	if err := g.call(ctx, http.MethodGet, "/users/@me", nil, &bot); err != nil {
		return 0, err
	}
	seen, err := g.since(ctx, s.channel, bot.ID, since.Add(-clockSkew))
	if err != nil {
		return 0, err
	}
	for _, part := range s.parts {
		at, ok := seen[strings.TrimSpace(part)]
		if ok && at.Before(since.Add(-fresh)) {
			return 0, errors.New("an equal message was sent shortly before")
		}
		if ok {
			found++
		}
	}
	return found, nil
}

// since returns what a user has sent to a channel since a time, and when, by the text.
func (g *Gateway) since(ctx context.Context, channel, user string, from time.Time) (map[string]time.Time, error) {
	seen, after := map[string]time.Time{}, strconv.FormatInt(max(from.UnixMilli()-epoch, 0)<<22, 10)
	for range maxPages {
		var page []message
		err := g.call(ctx, http.MethodGet, fmt.Sprintf("/channels/%s/messages?limit=%d&after=%s", channel, pageSize, after), nil, &page)
		if err != nil {
			return nil, err
		}
		for _, m := range page { // newest first
			at, err := strconv.ParseInt(m.ID, 10, 64)
			if err != nil {
				return nil, fmt.Errorf("the id of a message is %q", m.ID)
			}
			text := strings.TrimSpace(m.Content)
			if when := time.UnixMilli(at>>22 + epoch); m.Author.ID == user && when.After(seen[text]) {
				seen[text] = when
			}
		}
		if len(page) < pageSize {
			return seen, nil
		}
		after = page[0].ID
	}
	return nil, fmt.Errorf("it has more than %d messages since", maxPages*pageSize)
}
