package telegram

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/text"
	"skandha.dev/services/listener/chat"
	"skandha.dev/services/listener/contract"
)

const (
	longPoll = 30 * time.Second
	pollWait = longPoll + 30*time.Second
	callWait = 30 * time.Second
	// maxAlert is how long the answer to a press may be, in bytes; Telegram counts 200 characters.
	maxAlert = 190
)

// Gateway is the listener; see the package's documentation.
type Gateway struct {
	*chat.Hub
	cfg     Config
	api     *chat.API
	sending sync.Mutex // one delivery at a time
}

var _ contract.Gateway = (*Gateway)(nil)

// New returns a gateway and reads its secrets; an error names the field.
func New(name subject.Writer, cfg Config, deps chat.Deps) (*Gateway, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	token, err := cfg.token()
	if err != nil {
		return nil, err
	}
	hub, err := chat.New(name, "telegram", cfg.Config, deps)
	if err != nil {
		return nil, err
	}
	return &Gateway{Hub: hub, cfg: cfg, api: chat.NewAPI(strings.TrimRight(cfg.API, "/")+"/bot"+token, http.Header{})}, nil
}

// OnStart implements [contract.Listener].
func (g *Gateway) OnStart(_ context.Context, e contract.Emitter) error {
	if err := g.Start(e); err != nil {
		return err
	}
	go g.Connect(g.cfg.API, g.read)
	return nil
}

// OnStop implements [contract.Listener].
func (g *Gateway) OnStop(ctx context.Context) error { return g.Stop(ctx) }

// call calls a method of the Bot API and decodes its result.
func (g *Gateway) call(ctx context.Context, wait time.Duration, method string, in, result any) error {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	var answer struct {
		OK     bool            `json:"ok"`
		Result json.RawMessage `json:"result"`
	}
	if err := g.api.Do(ctx, http.MethodPost, "/"+method, in, &answer); err != nil {
		return err
	}
	if !answer.OK {
		return errors.New("the answer is not ok")
	}
	if result == nil {
		return nil
	}
	return json.Unmarshal(answer.Result, result)
}

// read handles updates until something fails.
func (g *Gateway) read(ctx context.Context) error {
	var bot user
	if err := g.call(ctx, callWait, "getMe", struct{}{}, &bot); err != nil {
		return chat.Waited(ctx, err)
	}
	g.Log().Info("connected to Telegram", "bot", bot.Username)
	offset := int64(0) // the oldest that is not confirmed; Telegram keeps the position
	for {
		var updates []update
		err := g.call(ctx, pollWait, "getUpdates", map[string]any{
			"offset": offset, "timeout": int(longPoll.Seconds()), "allowed_updates": []string{"message", "callback_query"},
		}, &updates)
		if err != nil {
			return chat.Waited(ctx, err)
		}
		g.Works()
		for _, u := range updates {
			if err := g.update(ctx, bot, u); err != nil {
				return err
			}
			offset = max(offset, u.ID+1)
		}
	}
}

func (g *Gateway) update(ctx context.Context, bot user, u update) error {
	switch {
	case u.Message != nil:
		return g.message(ctx, bot, u.Message)
	case u.Callback != nil:
		return g.press(ctx, u.Callback)
	}
	return nil
}

func (g *Gateway) message(ctx context.Context, bot user, m *message) error {
	body, addressed := m.addressed(bot)
	if body == "" || m.From != nil && m.From.ID == bot.ID {
		return nil
	}
	msg := chat.Message{
		Room: m.room(), Thread: m.topic(), Account: m.account(), Text: body, Addressed: addressed, ID: idOf(m),
		ReplyTo: address(m.Chat.ID, m.topic()),
	}
	if m.From != nil {
		msg.Program, msg.Name = m.From.Bot, m.From.Name
	}
	if strings.HasPrefix(body, "/start") && msg.Room == "" { // what a client sends when a chat begins
		return nil
	}
	reply, err := g.Until(ctx, msg)
	if err != nil || reply == "" {
		return err
	}
	if err := g.send(ctx, m.Chat.ID, m.topic(), reply, nil); err != nil {
		g.Log().Info("a reply was not sent", "error", err)
	}
	return nil
}

// idOf returns the id of a message, which is unique in its chat.
func idOf(m *message) string { return fmt.Sprintf("%d.%d", m.Chat.ID, m.ID) }

// address is where an answer goes: a chat, and a topic of it.
func address(room int64, topic string) string {
	return strings.TrimSpace(strconv.FormatInt(room, 10) + " " + topic)
}

// press handles a button of a request for approval as if the person had written the answer.
func (g *Gateway) press(ctx context.Context, p *press) error {
	if _, ok := chat.ParseAnswer(p.Data); !ok || p.Message == nil {
		return nil
	}
	reply, err := g.Until(ctx, chat.Message{
		Room: p.Message.room(), Thread: p.Message.topic(), Account: strconv.FormatInt(p.From.ID, 10), Name: p.From.Name, Program: p.From.Bot,
		Text: p.Data, Addressed: true, ID: "press " + p.ID,
	})
	if err != nil {
		return err
	}
	err = g.call(ctx, callWait, "answerCallbackQuery",
		map[string]any{"callback_query_id": p.ID, "text": text.Cut(reply, maxAlert), "show_alert": true}, nil)
	if err != nil { // it is too late, for example
		g.Log().Info("the answer to a button was not shown", "error", err)
	}
	return nil
}
