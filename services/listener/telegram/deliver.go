package telegram

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"skandha.dev/pkg/tool"
	"skandha.dev/services/listener/chat"
	"skandha.dev/services/listener/contract"
)

const (
	// maxText is the size of a message in bytes; Telegram counts 4,096 UTF-16 units, which are not more.
	maxText  = 4000
	maxParts = 8
)

// target reads where a message goes: a group of the configuration, or a person.
func (g *Gateway) target(to string) (id int64, at chat.Place, err error) {
	room, topic, _ := strings.Cut(to, " ")
	id, err = strconv.ParseInt(room, 10, 64)
	_, configured := g.cfg.Rooms[room]
	_, notTopic := strconv.ParseInt(topic, 10, 64)
	switch {
	case err == nil && configured && (topic == "" || notTopic == nil):
		return id, chat.Place{Room: room, Thread: topic}, nil
	case err == nil && userID.MatchString(room) && topic == "" && g.cfg.Direct:
		return id, chat.Place{Account: room}, nil
	}
	return 0, at, fmt.Errorf("%q is neither a group of listener %s nor a person whom direct messages are for", to, g.Name())
}

// Deliver implements [contract.Gateway].
func (g *Gateway) Deliver(ctx context.Context, m contract.Outgoing) tool.Result {
	g.sending.Lock()
	defer g.sending.Unlock()
	id, at, err := g.target(m.To)
	if err != nil {
		return chat.Permanent(err)
	}
	shown, err := g.Show(ctx, at, m)
	if err != nil {
		return tool.Failure(tool.CodeFailed, err.Error())
	}
	parts := chat.Parts(strings.TrimSpace(strings.Join(chat.Plain(shown.Text), "\n")), maxText, maxParts)
	if len(parts) == 0 {
		return chat.Permanent(errors.New("the message has no text"))
	}
	if err := m.Begin(ctx); err != nil {
		return tool.Failure(tool.CodeFailed, err.Error())
	}
	for i, part := range parts {
		var buttons any
		if shown.Code != "" && i == len(parts)-1 {
			buttons = approvalButtons(shown.Code)
		}
		err := g.send(ctx, id, at.Thread, part, buttons)
		switch {
		case err != nil && i > 0:
			return tool.Failure(tool.CodeOutcomeUnknown, fmt.Sprintf("%d of %d parts were sent: %v", i, len(parts), err))
		case err != nil:
			return chat.Undelivered(err)
		}
	}
	return tool.OK(map[string]any{"to": m.To, "parts": len(parts)})
}

func (g *Gateway) send(ctx context.Context, room int64, topic, text string, buttons any) error {
	in := map[string]any{"chat_id": room, "text": text, "link_preview_options": map[string]any{"is_disabled": true}}
	if topic != "" {
		in["message_thread_id"], _ = strconv.ParseInt(topic, 10, 64) // target or Telegram has made it
	}
	if buttons != nil {
		in["reply_markup"] = buttons
	}
	var sent message
	err := g.call(ctx, callWait, "sendMessage", in, &sent)
	if err == nil && sent.ID == 0 {
		err = errors.New("the answer names no message")
	}
	return err
}

func approvalButtons(code string) any {
	button := func(text, data string) map[string]any { return map[string]any{"text": text, "callback_data": data} }
	return map[string]any{"inline_keyboard": [][]any{{button("Approve", "yes "+code), button("Deny", "no "+code)}}}
}

// Probe implements [contract.Gateway]. Telegram does not show bots what they have sent.
func (g *Gateway) Probe(_ context.Context, m contract.Outgoing, _ tool.Begun) tool.Result {
	return contract.NeverKnown("Telegram recognizes no repeated message and does not show bots what they sent: " +
		"look into the chat " + m.To)
}
