package irc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/effect"
	"skandha.dev/services/internal/periodic"
	"skandha.dev/services/listener/chat"
	"skandha.dev/services/listener/contract"
)

const (
	// burst is how many lines leave at once.
	burst = 5
	// history is how much older than the connection a message may be.
	history = time.Minute
	replies = 64 // that wait to be sent
	known   = 1024

	noAccounts = "the server does not show accounts (IRCv3 account-tag), so nobody may talk; set identify: host or nick"
)

// Gateway is the listener; see the package's documentation.
type Gateway struct {
	*chat.Hub
	cfg     Config
	secrets secrets
	pace    *rate.Limiter
	replies chan reply
	sent    *lru.Cache[string, *sending] // recent deliveries, by key and attempt
	sending sync.Mutex                   // one delivery at a time
	link    *chat.Link[*conn]
	watcher atomic.Pointer[watcher] // nil while nothing watches
	// what this machine knows of attempts, and those that were delivered last
	attempts  effect.Attempts
	delivered []*effect.Attempt
}

var _ contract.Gateway = (*Gateway)(nil)

// reply is a notice to a sender.
type reply struct{ to, text string }

// New returns a gateway and reads its secrets; an error names the field.
func New(name subject.Writer, cfg Config, deps chat.Deps) (*Gateway, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	s, err := cfg.secrets()
	if err != nil {
		return nil, err
	}
	if cfg.Config, err = cfg.Canonical(fold, cfg.account); err != nil {
		return nil, err
	}
	hub, err := chat.New(name, "irc", cfg.Config, deps)
	if err != nil {
		return nil, err
	}
	sent, err := lru.New[string, *sending](known)
	if err != nil {
		return nil, err
	}
	return &Gateway{
		Hub: hub, cfg: cfg, secrets: s, pace: rate.NewLimiter(rate.Every(cfg.Pace), burst),
		replies: make(chan reply, replies),
		sent:    sent, link: chat.NewLink[*conn](), attempts: effect.NewAttempts(deps.StateDir, deps.Logger),
	}, nil
}

// OnStart implements [contract.Listener].
func (g *Gateway) OnStart(_ context.Context, e contract.Emitter) error {
	if err := g.Start(e); err != nil {
		return err
	}
	go g.Connect(g.cfg.Server, g.connect)
	if *g.cfg.Watch && len(g.cfg.Rooms) > 0 {
		go g.Repeat(g.watch, func(err error, wait time.Duration) {
			g.Log().Info("nothing watches the channels", "server", g.cfg.Server, "error", err, "again_in", wait)
		})
	}
	go g.reply()
	return nil
}

// OnStop implements [contract.Listener]. The connection ends with [chat.Hub.Life].
func (g *Gateway) OnStop(ctx context.Context) error { return g.Stop(ctx) }

// connect serves one connection until it ends.
func (g *Gateway) connect(ctx context.Context) error {
	c, err := dial(ctx, g.cfg, g.secrets)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	g.Log().Info("connected to the IRC server", "server", g.cfg.Server, "nick", c.name(), "capabilities", c.caps)
	g.link.Set(c)
	g.assess(c)
	defer func() { g.link.Set(nil); close(c.lost) }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	for room := range g.cfg.Rooms {
		g.join(c, room)
	}
	go periodic.Every(ctx, g.cfg.Ping, func() { g.keep(c) })
	for {
		_ = c.SetReadDeadline(time.Now().Add(3 * g.cfg.Ping)) // of a closed connection the read fails
		m, err := c.read()
		if err != nil {
			return err
		}
		if err := g.handle(c, m); err != nil {
			return err
		}
	}
}

// keep makes the server show that it is there, and asks again for the nickname and the channels
// that the gateway does not have.
func (g *Gateway) keep(c *conn) {
	_ = c.write("PING :keep") // a failure ends the connection
	if c.name() != g.cfg.Nick {
		_ = c.write("NICK %s", g.cfg.Nick)
	}
	for room := range g.cfg.Rooms {
		if !c.in(room) {
			g.join(c, room)
		}
	}
}

// assess reports what does not work although the gateway is connected.
func (g *Gateway) assess(c *conn) {
	var troubles []string
	if !c.has("account-tag") && g.cfg.Identify == ByAccount {
		troubles = append(troubles, noAccounts)
	}
	if name := c.name(); fold(name) != fold(g.cfg.Nick) {
		troubles = append(troubles, fmt.Sprintf("the nickname %s is in use; connected as %s", g.cfg.Nick, name))
	}
	for room := range g.cfg.Rooms {
		if !c.in(room) {
			troubles = append(troubles, "not in "+room)
		}
	}
	slices.Sort(troubles)
	g.Works(troubles...)
}

func (g *Gateway) join(c *conn, room string) {
	_ = c.write("%s", strings.TrimSpace("JOIN "+room+" "+g.secrets.keys[room]))
}

// ready waits until the gateway is connected and, unless room is empty, in the channel, as the server
// has just shown.
func (g *Gateway) ready(ctx context.Context, room string) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, readyWait)
	defer cancel()
	in := func(c *conn) bool { return room == "" || c.in(room) }
	for {
		c, ok := g.link.Wait(ctx, in)
		switch {
		case c == nil:
			return nil, errors.New("not connected to the IRC server")
		case !ok:
			return nil, fmt.Errorf("not in the channel %s", room)
		}
		err := c.check(ctx)
		if err == nil && in(c) {
			return c, nil
		}
		if err == nil {
			continue // it was removed from the channel
		}
		select {
		case <-c.lost:
		case <-ctx.Done():
			return nil, err
		}
	}
}

// handle handles a line of the server.
func (g *Gateway) handle(c *conn, m message) error {
	own := fold(m.nick()) == fold(c.name())
	switch m.command {
	case "PING":
		return c.write("PONG :%s", m.param(0))
	case "PONG":
		c.pong(m.param(1))
	case "ERROR":
		return fmt.Errorf("the server ended the connection: %s", reason(m))
	case "PRIVMSG":
		if !own {
			g.take(c, m)
		}
	case "NICK":
		if own {
			c.mu.Lock()
			c.nick = m.param(0)
			c.mu.Unlock()
			g.assess(c)
		}
	case "JOIN":
		if own {
			g.membership(c, fold(m.param(0)), true, "")
		}
	case "PART":
		if own {
			g.membership(c, fold(m.param(0)), false, "left")
		}
	case "KICK":
		if fold(m.param(1)) == fold(c.name()) {
			g.membership(c, fold(m.param(0)), false, "removed by "+m.nick()+": "+reason(m))
		}
	default:
		g.numeric(c, m)
	}
	return nil
}

func (g *Gateway) membership(c *conn, room string, in bool, why string) {
	c.setIn(room, in)
	g.link.Changed()
	g.assess(c)
	if _, ok := g.cfg.Rooms[room]; ok && !in {
		g.Log().Warn("not in a channel any more; it is joined again", "channel", room, "reason", why)
	}
}

// numeric handles the server's answers to what the gateway has sent.
func (g *Gateway) numeric(c *conn, m message) {
	switch m.command {
	case "403", "405", "471", "473", "474", "475", "476", "477": // JOIN or PRIVMSG
		if room := fold(m.param(1)); !c.in(room) {
			if _, ok := g.cfg.Rooms[room]; ok {
				g.Log().Warn("cannot join a channel", "channel", room, "code", m.command, "reason", reason(m))
			}
		}
		c.fault(m)
	case "401", "402", "404", "407", "411", "412", "417", "440", "442", "531": // PRIVMSG or WHOIS
		c.fault(m)
	case "311", "330", "318":
		c.identity(m)
	}
}

// take passes a message to the hub.
func (g *Gateway) take(c *conn, m message) {
	body := m.param(1)
	if strings.HasPrefix(body, "\x01") || old(c, m) { // CTCP; or what the network repeats
		return
	}
	msg := chat.Message{Name: m.nick(), Account: g.identity(c, m), Text: unformatted(body)}
	if msg.Text == "" {
		return
	}
	if c.has("message-tags") {
		msg.ID = m.tags["msgid"]
	}
	answerTo := m.nick()
	if target := fold(m.param(0)); target != fold(c.name()) {
		msg.Room, answerTo = target, target
		msg.ReplyTo = target
		if msg.Text, msg.Addressed = chat.Addressed(msg.Text, c.name()); !msg.Addressed { // people know the other name
			msg.Text, msg.Addressed = chat.Addressed(msg.Text, g.cfg.Nick)
		}
	} else if msg.Account != "" {
		msg.ReplyTo = m.nick() + "!" + msg.Account
	}
	g.Take(msg, func(text string) {
		select {
		case g.replies <- reply{answerTo, text}:
		default: // more are waiting than people would read
		}
	})
}

// old reports whether a message is from before the connection: a bouncer repeats those.
func old(c *conn, m message) bool {
	if !c.has("server-time") {
		return false
	}
	at, err := time.Parse(time.RFC3339Nano, m.tags["time"])
	return err == nil && at.Before(c.since.Add(-history))
}

// identity is whom a message is from; empty if the server does not say.
func (g *Gateway) identity(c *conn, m message) string {
	switch g.cfg.Identify {
	case ByHost:
		return m.host()
	case ByNick:
		if m.host() == "" { // a server
			return ""
		}
		return fold(m.nick())
	}
	if account := m.tags["account"]; c.has("account-tag") && account != "*" {
		return fold(account)
	}
	return ""
}

// reply sends notices, to which no program reacts.
func (g *Gateway) reply() {
	for {
		select {
		case <-g.Life().Done():
			return
		case r := <-g.replies:
			c := g.link.Current()
			if c == nil {
				continue
			}
			for _, line := range chat.Lines(chat.Plain(r.text), c.room(r.to), 3) {
				if g.pace.Wait(g.Life()) == nil {
					_ = c.write("NOTICE %s :%s", r.to, line) // a failure ends the connection
				}
			}
		}
	}
}
