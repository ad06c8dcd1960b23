package discord

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
	lru "github.com/hashicorp/golang-lru/v2"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/listener/chat"
	"skandha.dev/services/listener/contract"
)

const (
	callWait = 30 * time.Second
	known    = 1024 // channels whose parent is remembered
)

// The kinds of channels.
const (
	kindDirect                  = 1
	kindNewsThread, kindPrivate = 10, 12 // threads are between them
)

// Gateway is the listener; see the package's documentation.
type Gateway struct {
	*chat.Hub
	cfg      Config
	token    string
	api      *chat.API
	channels *lru.Cache[string, channel]
	sending  sync.Mutex // one delivery at a time
}

var _ contract.Gateway = (*Gateway)(nil)

// channel is a channel, or a thread of one.
type channel struct {
	ID         string `json:"id"`
	Type       int    `json:"type"`
	Parent     string `json:"parent_id"`
	Recipients []user `json:"recipients"` // of a direct channel
}

type user struct {
	ID   string `json:"id"`
	Name string `json:"username"`
	Bot  bool   `json:"bot"`
}

// message is a message of a channel.
type message struct {
	ID       string `json:"id"`
	Channel  string `json:"channel_id"`
	Guild    string `json:"guild_id"`
	Author   user   `json:"author"`
	Content  string `json:"content"`
	Webhook  string `json:"webhook_id"`
	Mentions []user `json:"mentions"`
	Type     int    `json:"type"` // 0: a message, 19: a reply
	Replied  *struct {
		Author user `json:"author"`
	} `json:"referenced_message"`
}

// interaction is a button that somebody pressed.
type interaction struct {
	ID      string `json:"id"`
	Token   string `json:"token"`
	Type    int    `json:"type"` // 3: a component
	Channel string `json:"channel_id"`
	Data    struct {
		CustomID string `json:"custom_id"`
	} `json:"data"`
	Member *struct {
		User user `json:"user"`
	} `json:"member"` // in a guild
	User *user `json:"user"` // elsewhere
}

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
	hub, err := chat.New(name, "discord", cfg.Config, deps)
	if err != nil {
		return nil, err
	}
	channels, err := lru.New[string, channel](known)
	if err != nil {
		return nil, err
	}
	header := http.Header{"Authorization": {"Bot " + token}, "User-Agent": {"DiscordBot (https://skandha.dev, 1)"}}
	return &Gateway{Hub: hub, cfg: cfg, token: token, api: chat.NewAPI(cfg.API, header), channels: channels}, nil
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

func (g *Gateway) call(ctx context.Context, method, path string, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, callWait)
	defer cancel()
	return g.api.Do(ctx, method, path, in, out)
}

// read serves one connection until it ends.
func (g *Gateway) read(ctx context.Context) error {
	stored, err := g.Position(ctx)
	if err != nil {
		return err
	}
	var at position
	if stored.Value != "" {
		if err := json.Unmarshal([]byte(stored.Value), &at); err != nil {
			g.Log().Warn("the stored position cannot be read; a new session begins", "error", err)
		}
	}
	address := at.URL
	if at.Session == "" || address == "" {
		at = position{}
		var where struct {
			URL string `json:"url"`
		}
		if err := g.call(ctx, http.MethodGet, "/gateway/bot", nil, &where); err != nil {
			return chat.Waited(ctx, err)
		}
		address = where.URL
	}
	s, err := open(ctx, address, g.token, at)
	if err == nil {
		defer func() { _ = s.CloseNow() }()
		err = g.follow(ctx, s, stored, at)
	}
	if at.Session != "" && (errors.Is(err, errInvalid) || ended(err)) { // the next connection begins a new session
		if err := stored.Store(ctx, ""); err != nil {
			return err
		}
	}
	return err
}

// ended reports whether the gateway closed the connection in a way that ends the session.
func ended(err error) bool {
	switch websocket.CloseStatus(err) {
	case 4003, 4004, 4007, 4009:
		return true
	}
	return false
}

// follow handles what the gateway sends, and stores the position after each event.
func (g *Gateway) follow(ctx context.Context, s *socket, stored *chat.Position, at position) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go s.beat(ctx)
	for {
		f, err := s.next(ctx)
		if err != nil {
			return err
		}
		switch f.Op {
		case opHeartbeat:
			err = s.heartbeat(ctx)
		case opHeartbeatAck:
			s.acked.Store(true)
		case opReconnect:
			return errors.New("the gateway asks for a new connection")
		case opInvalidSession:
			if string(f.Data) == "true" {
				return errors.New("the gateway asks to resume later")
			}
			return errInvalid
		case opDispatch:
			err = g.dispatch(ctx, f, &at)
			if err == nil && f.Seq != nil && at.Session != "" {
				at.Seq = *f.Seq
				s.seq.Store(at.Seq)
				err = g.store(ctx, stored, at)
			}
		}
		if err != nil {
			return err
		}
	}
}

func (g *Gateway) store(ctx context.Context, stored *chat.Position, at position) error {
	body, err := json.Marshal(at)
	if err != nil {
		return err
	}
	return stored.Store(ctx, string(body))
}

// dispatch handles an event. What cannot be read is skipped.
func (g *Gateway) dispatch(ctx context.Context, f frame, at *position) error {
	switch f.Type {
	case "READY":
		var ready struct {
			Session string `json:"session_id"`
			URL     string `json:"resume_gateway_url"`
			User    user   `json:"user"`
		}
		if err := json.Unmarshal(f.Data, &ready); err != nil || ready.Session == "" {
			return errors.New("the gateway's READY names no session")
		}
		*at = position{Session: ready.Session, URL: ready.URL, User: ready.User.ID}
		g.Works()
		g.Log().Info("connected to Discord", "bot", ready.User.Name)
	case "RESUMED":
		g.Works()
		g.Log().Info("resumed the session with Discord")
	case "MESSAGE_CREATE":
		var m message
		if json.Unmarshal(f.Data, &m) == nil {
			return g.message(ctx, at.User, m)
		}
	case "INTERACTION_CREATE":
		var i interaction
		if json.Unmarshal(f.Data, &i) == nil && i.Type == 3 {
			return g.press(ctx, i)
		}
	}
	return nil
}

// message passes a message to the hub.
func (g *Gateway) message(ctx context.Context, bot string, m message) error {
	if m.Author.ID == bot || m.Type != 0 && m.Type != 19 || strings.TrimSpace(m.Content) == "" {
		return nil
	}
	c, ok, err := g.channel(ctx, m.Channel)
	if err != nil || !ok {
		return err
	}
	msg := chat.Message{Account: m.Author.ID, Name: m.Author.Name, ID: m.ID, ReplyTo: m.Channel, Program: m.Author.Bot || m.Webhook != ""}
	if msg.Room, msg.Thread, ok = g.place(c); !ok {
		return nil
	}
	if m.Webhook != "" {
		msg.Account = "" // anybody who has its URL can send
	}
	msg.Text, msg.Addressed = addressed(m, bot)
	if msg.Text == "" {
		return nil
	}
	reply, err := g.Until(ctx, msg)
	if err != nil || reply == "" {
		return err
	}
	if err := g.post(ctx, m.Channel, reply, nonce("reply "+m.ID, 0), nil); err != nil {
		g.Log().Info("a reply was not sent", "error", err)
	}
	return nil
}

// addressed reports whether a message mentions the bot or replies to it, and returns the text without the
// mention.
func addressed(m message, bot string) (text string, ok bool) {
	text = strings.ToValidUTF8(m.Content, "\uFFFD")
	for _, u := range m.Mentions {
		ok = ok || u.ID == bot
	}
	for _, mention := range []string{"<@" + bot + ">", "<@!" + bot + ">"} {
		if rest, found := strings.CutPrefix(text, mention); found {
			text = strings.TrimLeft(rest, ":, ")
		}
	}
	return strings.TrimSpace(text), ok || m.Replied != nil && m.Replied.Author.ID == bot
}

// place names the conversation in a channel: a room and a thread, or none for direct messages. It reports
// false if the channel is not the gateway's business.
func (g *Gateway) place(c channel) (room, thread string, ok bool) {
	if c.Type == kindDirect {
		return "", "", true
	}
	room = c.ID
	if c.Type >= kindNewsThread && c.Type <= kindPrivate {
		room, thread = c.Parent, c.ID
	}
	_, ok = g.cfg.Rooms[room]
	return room, thread, ok
}

// channel looks a channel up; false if it cannot be seen.
func (g *Gateway) channel(ctx context.Context, id string) (c channel, ok bool, err error) {
	if !snowflake.MatchString(id) {
		return c, false, nil
	}
	if c, ok := g.channels.Get(id); ok {
		return c, true, nil
	}
	err = g.call(ctx, http.MethodGet, "/channels/"+id, nil, &c)
	if r, refused := errors.AsType[*chat.Refusal](err); refused && (r.Status == http.StatusForbidden || r.Status == http.StatusNotFound) {
		return c, false, nil
	}
	if err != nil {
		return c, false, fmt.Errorf("looking up channel %s: %w", id, chat.Waited(ctx, err))
	}
	g.channels.Add(id, c)
	return c, true, nil
}

// press handles a button of a request for approval as if the person had written the answer.
func (g *Gateway) press(ctx context.Context, i interaction) error {
	who := i.User
	if i.Member != nil {
		who = &i.Member.User
	}
	if _, ok := chat.ParseAnswer(i.Data.CustomID); !ok || who == nil || !snowflake.MatchString(i.ID) {
		return nil
	}
	c, ok, err := g.channel(ctx, i.Channel)
	if err != nil || !ok {
		return err
	}
	room, thread, ok := g.place(c)
	if !ok {
		return nil
	}
	reply, err := g.Until(ctx, chat.Message{
		Room: room, Thread: thread, Account: who.ID, Name: who.Name, Program: who.Bot, Text: i.Data.CustomID, Addressed: true, ID: "press " + i.ID,
	})
	if err != nil || reply == "" {
		return err
	}
	answer := map[string]any{"type": 4, "data": map[string]any{"content": reply, "allowed_mentions": noMentions}}
	if err := g.call(ctx, http.MethodPost, "/interactions/"+i.ID+"/"+i.Token+"/callback", answer, nil); err != nil { // it is too late, for example
		g.Log().Info("the answer to a button was not shown", "error", err)
	}
	return nil
}
