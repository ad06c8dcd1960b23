package slack

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"skandha.dev/pkg/tool"
	"skandha.dev/services/listener/chat"
	"skandha.dev/services/listener/contract"
)

const (
	maxText   = 2900 // bytes of a message; a block has 3,000 characters
	maxParts  = 8
	clockSkew = 5 * time.Minute // between the bus and Slack
	// settled is when Slack has certainly handled a request, or never will.
	settled  = callWait + 10*time.Second
	pageSize = 200
	maxPages = 10
	// eventType marks the gateway's messages.
	eventType = "skandha_delivery"
)

// permanent are the refusals that a repetition cannot mend.
var permanent = []string{
	"channel_not_found", "is_archived", "msg_too_long", "no_text", "invalid_blocks", "restricted_action", "user_not_found",
	"messages_tab_disabled", "cannot_dm_bot", "user_disabled",
}

// uncertain are the refusals after which a message may still have been sent.
var uncertain = []string{"internal_error", "fatal_error", "service_unavailable", "request_timeout"}

// idOf names a part of a delivery.
func idOf(key string, part int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "slack %d %s", part, key))
	return hex.EncodeToString(sum[:16])
}

// target reads where a message goes: CHANNEL, CHANNEL THREAD, DIRECT USER or USER.
func (g *Gateway) target(to string) (channel string, at chat.Place, err error) {
	channel, rest, _ := strings.Cut(to, " ")
	_, configured := g.cfg.Rooms[channel]
	switch {
	case configured && (rest == "" || timestamp.MatchString(rest)):
		return channel, chat.Place{Room: channel, Thread: rest}, nil
	case g.cfg.Direct && directID.MatchString(channel) && userID.MatchString(rest):
		return channel, chat.Place{Account: rest}, nil
	case g.cfg.Direct && userID.MatchString(channel) && rest == "":
		return channel, chat.Place{Account: channel}, nil
	}
	return "", at, fmt.Errorf("%q is neither a channel of listener %s nor a person whom direct messages are for", to, g.Name())
}

// Deliver implements [contract.Gateway].
func (g *Gateway) Deliver(ctx context.Context, m contract.Outgoing) tool.Result {
	g.sending.Lock()
	defer g.sending.Unlock()
	channel, at, err := g.target(m.To)
	if err != nil {
		return chat.Permanent(err)
	}
	if at.Room == "" { // the history can be read by the id of the conversation alone
		if channel, err = g.direct(ctx, at.Account); err != nil {
			r := undelivered(err)
			r.Error.Code = tool.CodeFailed // the message was not sent yet
			return r
		}
	}
	shown, err := g.Show(ctx, at, m)
	if err != nil {
		return tool.Failure(tool.CodeFailed, err.Error())
	}
	parts := partsOf(shown)
	if len(parts) == 0 {
		return chat.Permanent(errors.New("the message has no text"))
	}
	if err := m.Begin(ctx); err != nil {
		return tool.Failure(tool.CodeFailed, err.Error())
	}
	for i, part := range parts {
		var blocks any
		if shown.Code != "" && i == len(parts)-1 {
			blocks = approvalBlocks(part, shown.Code)
		}
		err := g.post(ctx, channel, at.Thread, part, idOf(m.Key, i), blocks)
		switch {
		case err != nil && i > 0:
			return tool.Failure(tool.CodeOutcomeUnknown, fmt.Sprintf("%d of %d parts were sent: %v", i, len(parts), err))
		case err != nil:
			return undelivered(err)
		}
	}
	return tool.OK(map[string]any{"to": m.To, "parts": len(parts)})
}

func partsOf(shown chat.Shown) []string {
	return chat.Parts(strings.TrimSpace(strings.Join(chat.Plain(shown.Text), "\n")), maxText, maxParts)
}

// direct returns the id of the conversation with a person.
func (g *Gateway) direct(ctx context.Context, account string) (string, error) {
	var answer struct {
		Channel struct {
			ID string `json:"id"`
		} `json:"channel"`
	}
	err := call(ctx, g.bot, "conversations.open", map[string]any{"users": account}, &answer)
	if err == nil && !directID.MatchString(answer.Channel.ID) {
		err = errors.New("the answer names no conversation")
	}
	return answer.Channel.ID, err
}

// undelivered is the result after an error of the call that sends the message.
func undelivered(err error) tool.Result {
	code, ok := errors.AsType[refused](err)
	switch {
	case ok && slices.Contains(permanent, string(code)):
		return chat.Permanent(err)
	case ok && slices.Contains(uncertain, string(code)):
		return tool.Failure(tool.CodeOutcomeUnknown, err.Error())
	case ok:
		return tool.Failure(tool.CodeFailed, err.Error())
	}
	return chat.Undelivered(err)
}

func (g *Gateway) post(ctx context.Context, channel, thread, text, id string, blocks any) error {
	in := map[string]any{
		"channel": channel, "text": escaped.Replace(text), "mrkdwn": false, "unfurl_links": false, "unfurl_media": false, "parse": "none",
	}
	if thread != "" {
		in["thread_ts"] = thread
	}
	if id != "" {
		in["metadata"] = map[string]any{"event_type": eventType, "event_payload": map[string]string{"id": id}}
	}
	if blocks != nil {
		in["blocks"] = blocks
	}
	var answer struct {
		TS string `json:"ts"`
	}
	err := call(ctx, g.bot, "chat.postMessage", in, &answer)
	if err == nil && answer.TS == "" {
		err = errors.New("the answer names no message")
	}
	return err
}

func approvalBlocks(text, code string) any {
	plain := func(s string) map[string]any { return map[string]any{"type": "plain_text", "text": s} }
	button := func(style, label, value string) map[string]any {
		return map[string]any{"type": "button", "style": style, "text": plain(label), "action_id": label, "value": value}
	}
	return []any{
		map[string]any{"type": "section", "text": plain(text)},
		map[string]any{"type": "actions", "elements": []any{
			button("primary", "Approve", "yes "+code), button("danger", "Deny", "no "+code),
		}},
	}
}

// Probe implements [contract.Gateway].
func (g *Gateway) Probe(ctx context.Context, m contract.Outgoing, b tool.Begun) tool.Result {
	g.sending.Lock()
	defer g.sending.Unlock()
	unknown := func(err error) tool.Result {
		return tool.Failure(tool.CodeOutcomeUnknown, "the conversation cannot be read: "+err.Error())
	}
	channel, at, err := g.target(m.To)
	if err == nil && at.Room == "" {
		channel, err = g.direct(ctx, at.Account)
	}
	if err != nil {
		return unknown(err)
	}
	shown, err := g.Show(ctx, at, m)
	if err != nil {
		return unknown(err)
	}
	seen, err := g.find(ctx, channel, at.Thread, b.At)
	if err != nil {
		return unknown(err)
	}
	parts, found := partsOf(shown), 0
	for i := range parts {
		if seen[idOf(m.Key, i)] {
			found++
		}
	}
	switch {
	case found == len(parts):
		return tool.OK(map[string]any{"to": m.To, "parts": found, "found_in_history": true})
	case found == 0 && time.Since(b.At) > settled && time.Now().After(b.Until):
		return tool.Failure(tool.CodeNotRun, "the conversation does not have the message, and the request that would send it has ended")
	}
	return tool.Failure(tool.CodeOutcomeUnknown, fmt.Sprintf("%d of %d parts are in the conversation so far", found, len(parts)))
}

// find returns the ids of the gateway's messages in a conversation since a time.
func (g *Gateway) find(ctx context.Context, channel, thread string, since time.Time) (map[string]bool, error) {
	q := url.Values{
		"channel": {channel}, "oldest": {fmt.Sprintf("%d.000000", since.Add(-clockSkew).Unix())}, "limit": {strconv.Itoa(pageSize)},
		"include_all_metadata": {"true"},
	}
	method := "conversations.history?"
	if thread != "" {
		method = "conversations.replies?"
		q.Set("ts", thread)
	}
	seen := map[string]bool{}
	for range maxPages {
		var page struct {
			Messages []struct {
				Metadata struct {
					Type    string         `json:"event_type"`
					Payload map[string]any `json:"event_payload"`
				} `json:"metadata"`
			} `json:"messages"`
			More bool `json:"has_more"`
			Next struct {
				Cursor string `json:"next_cursor"`
			} `json:"response_metadata"`
		}
		if err := do(ctx, g.bot, http.MethodGet, method+q.Encode(), nil, &page); err != nil {
			return nil, err
		}
		for _, m := range page.Messages {
			if id, ok := m.Metadata.Payload["id"].(string); ok && m.Metadata.Type == eventType {
				seen[id] = true
			}
		}
		if !page.More || page.Next.Cursor == "" {
			return seen, nil
		}
		q.Set("cursor", page.Next.Cursor)
	}
	return nil, fmt.Errorf("it has more than %d messages since", maxPages*pageSize)
}
