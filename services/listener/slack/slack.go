package slack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/periodic"
	"skandha.dev/services/listener/chat"
	"skandha.dev/services/listener/contract"
)

const (
	callWait  = 20 * time.Second
	openWait  = 30 * time.Second
	writeWait = 10 * time.Second
	pingEvery = 30 * time.Second
	maxFrame  = 4 << 20 // bytes
)

// Gateway is the listener; see the package's documentation.
type Gateway struct {
	*chat.Hub
	cfg      Config
	app, bot *chat.API  // with the token of the app, and of the bot
	sending  sync.Mutex // one delivery at a time
}

var _ contract.Gateway = (*Gateway)(nil)

// New returns a gateway and reads its secrets; an error names the field.
func New(name subject.Writer, cfg Config, deps chat.Deps) (*Gateway, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	app, bot, err := cfg.tokens()
	if err != nil {
		return nil, err
	}
	hub, err := chat.New(name, "slack", cfg.Config, deps)
	if err != nil {
		return nil, err
	}
	api := func(token string) *chat.API {
		return chat.NewAPI(cfg.API, http.Header{"Authorization": {"Bearer " + token}})
	}
	return &Gateway{Hub: hub, cfg: cfg, app: api(app), bot: api(bot)}, nil
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

// refused is an answer that is not ok: its code, such as channel_not_found.
type refused string

// Error returns the code.
func (r refused) Error() string { return "Slack refuses it: " + string(r) }

// call calls a method of the Web API that changes something, and decodes the whole answer.
func call(ctx context.Context, api *chat.API, method string, in, out any) error {
	return do(ctx, api, http.MethodPost, method, in, out)
}

func do(ctx context.Context, api *chat.API, verb, method string, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, callWait)
	defer cancel()
	var raw json.RawMessage
	if err := api.Do(ctx, verb, "/"+method, in, &raw); err != nil {
		return err
	}
	var answer struct {
		OK    bool   `json:"ok"`
		Error string `json:"error"`
	}
	if err := json.Unmarshal(raw, &answer); err != nil {
		return fmt.Errorf("the answer is not the JSON that was expected: %w", err)
	}
	if !answer.OK {
		return refused(answer.Error)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(raw, out)
}

// read serves one connection until it ends.
func (g *Gateway) read(ctx context.Context) error {
	var me struct {
		User string `json:"user_id"`
	}
	if err := call(ctx, g.bot, "auth.test", struct{}{}, &me); err != nil {
		return chat.Waited(ctx, err)
	}
	c, err := g.open(ctx)
	if err != nil {
		return chat.Waited(ctx, err)
	}
	defer func() { _ = c.CloseNow() }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go periodic.Every(ctx, pingEvery, func() {
		ctx, cancel := context.WithTimeout(ctx, writeWait)
		defer cancel()
		if c.Ping(ctx) != nil {
			_ = c.CloseNow()
		}
	})
	for {
		var e envelope
		if err := wsjson.Read(ctx, c, &e); err != nil {
			return err
		}
		if e.Type == "disconnect" {
			return fmt.Errorf("Slack asks for a new connection: %s", e.Reason) //nolint:staticcheck // a name
		}
		if err := g.envelope(ctx, me.User, e); err != nil {
			return err
		}
		if e.ID == "" {
			continue
		}
		if err := acknowledge(ctx, c, e.ID); err != nil {
			return err
		}
	}
}

func acknowledge(ctx context.Context, c *websocket.Conn, id string) error {
	ctx, cancel := context.WithTimeout(ctx, writeWait)
	defer cancel()
	return wsjson.Write(ctx, c, map[string]string{"envelope_id": id})
}

// open asks for the address of a connection, which is valid once, and connects.
func (g *Gateway) open(ctx context.Context) (*websocket.Conn, error) {
	var where struct {
		URL string `json:"url"`
	}
	if err := call(ctx, g.app, "apps.connections.open", struct{}{}, &where); err != nil {
		return nil, err
	}
	u, err := url.Parse(where.URL)
	if err != nil || u.Scheme != "wss" && u.Scheme != "ws" {
		return nil, errors.New("the address of the connection is no WebSocket")
	}
	if err := chat.CheckBase("the connection's address", "http"+strings.TrimPrefix(u.Scheme, "ws")+"://"+u.Host); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, openWait)
	defer cancel()
	c, _, err := websocket.Dial(ctx, where.URL, nil) //nolint:bodyclose // the library closes it
	if err != nil {
		return nil, errors.New("the connection was refused") // the error has the URL, which has a ticket
	}
	c.SetReadLimit(maxFrame)
	return c, nil
}

// envelope handles what an envelope holds. What cannot be read is skipped.
func (g *Gateway) envelope(ctx context.Context, bot string, e envelope) error {
	switch e.Type {
	case "hello":
		g.Works()
		g.Log().Info("connected to Slack", "bot", bot)
	case "events_api":
		var p struct {
			Event event `json:"event"`
		}
		if json.Unmarshal(e.Payload, &p) == nil {
			return g.message(ctx, bot, p.Event)
		}
	case "interactive":
		var a action
		if json.Unmarshal(e.Payload, &a) == nil {
			return g.press(ctx, a)
		}
	}
	return nil
}

// message passes a message to the hub.
func (g *Gateway) message(ctx context.Context, bot string, e event) error {
	if e.Type != "message" || e.Subtype != "" && e.Subtype != "thread_broadcast" || e.User == bot || !timestamp.MatchString(e.TS) {
		return nil
	}
	msg := chat.Message{Account: e.User, Name: e.User, ID: e.Channel + "." + e.TS, Program: e.Bot != ""}
	if msg.Program { // it may be sent as a person, with a token of theirs
		msg.Account = e.Bot
	}
	msg.Text, msg.Addressed = addressed(e.Text, bot)
	switch {
	case msg.Text == "":
		return nil
	case e.Kind == "im":
		msg.ReplyTo = e.Channel + " " + e.User
	default:
		msg.Room, msg.Thread = e.Channel, e.thread()
		msg.ReplyTo = strings.TrimSpace(e.Channel + " " + msg.Thread)
	}
	reply, err := g.Until(ctx, msg)
	if err != nil || reply == "" {
		return err
	}
	if err := g.post(ctx, e.Channel, msg.Thread, reply, "", nil); err != nil {
		g.Log().Info("a reply was not sent", "error", err)
	}
	return nil
}

// press handles a button of a request for approval as if the person had written the answer.
func (g *Gateway) press(ctx context.Context, a action) error {
	if a.Type != "block_actions" || len(a.Actions) == 0 {
		return nil
	}
	pressed := a.Actions[0]
	if _, ok := chat.ParseAnswer(pressed.Value); !ok {
		return nil
	}
	msg := chat.Message{
		Account: a.User.ID, Name: a.User.ID, Text: pressed.Value, Addressed: true, ID: "press " + a.User.ID + " " + pressed.At,
	}
	if !directID.MatchString(a.Channel.ID) {
		msg.Room, msg.Thread = a.Channel.ID, a.Message.Thread
	}
	reply, err := g.Until(ctx, msg)
	if err != nil || reply == "" {
		return err
	}
	in := map[string]any{"channel": a.Channel.ID, "user": a.User.ID, "text": escaped.Replace(reply)}
	if msg.Thread != "" {
		in["thread_ts"] = msg.Thread
	}
	if err := call(ctx, g.bot, "chat.postEphemeral", in, nil); err != nil {
		g.Log().Info("the answer to a button was not shown", "error", err)
	}
	return nil
}
