package xmpp

import (
	"context"
	"crypto/tls"
	"encoding/xml"
	"fmt"
	"strings"
	"sync"
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/periodic"
	"skandha.dev/services/listener/chat"
	"skandha.dev/services/listener/contract"
)

// replies is how many replies wait to be sent.
const replies = 64

// Gateway is the listener; see the package's documentation.
type Gateway struct {
	*chat.Hub
	cfg      Config
	password string
	tls      *tls.Config
	link     *chat.Link[*stream]
	replies  chan reply
	sending  sync.Mutex // one delivery at a time
}

var _ contract.Gateway = (*Gateway)(nil)

// reply is a message to a sender.
type reply struct{ to, kind, text string }

// room is a room that the gateway is in, or wants to be in.
type room struct {
	nick     string // the gateway's
	joined   bool
	accounts map[string]string // bare JIDs, as far as the room shows them, by nickname
}

// New returns a gateway and reads its secrets; an error names the field.
func New(name subject.Writer, cfg Config, deps chat.Deps) (*Gateway, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	password, secure, err := cfg.secrets()
	if err != nil {
		return nil, err
	}
	if cfg.Config, err = cfg.Canonical(canonical, canonical); err != nil {
		return nil, err
	}
	hub, err := chat.New(name, "xmpp", cfg.Config, deps)
	if err != nil {
		return nil, err
	}
	return &Gateway{
		Hub: hub, cfg: cfg, password: password, tls: secure, link: chat.NewLink[*stream](), replies: make(chan reply, replies),
	}, nil
}

// OnStart implements [contract.Listener].
func (g *Gateway) OnStart(_ context.Context, e contract.Emitter) error {
	if err := g.Start(e); err != nil {
		return err
	}
	go g.Connect(g.cfg.Server, g.connect)
	go g.reply()
	return nil
}

// OnStop implements [contract.Listener]. The connection ends with [chat.Hub.Life].
func (g *Gateway) OnStop(ctx context.Context) error { return g.Stop(ctx) }

// resource is the same in every process of the gateway, so that a new connection ends the old one.
func (g *Gateway) resource() string { return "skandha-" + string(g.Name()) }

// connect serves one connection until it ends.
func (g *Gateway) connect(ctx context.Context) error {
	s, err := dial(ctx, g.cfg, g.password, g.tls, g.resource())
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = s.Close() })
	defer stop()
	g.Log().Info("connected to the XMPP server", "server", g.cfg.Server, "jid", s.jid)
	for name := range g.cfg.Rooms {
		s.rooms[name] = &room{nick: g.cfg.Nick, accounts: map[string]string{}}
	}
	if err := s.write("<presence/>"); err != nil {
		return err
	}
	g.link.Set(s)
	g.assess(s)
	defer func() { g.link.Set(nil); close(s.lost) }()
	g.join(s)
	go periodic.Every(ctx, g.cfg.Ping, func() {
		_ = s.write("<iq type='get' id='keep'><ping xmlns='urn:xmpp:ping'/></iq>") // a failure ends the connection
		g.join(s)
	})
	for {
		_ = s.SetReadDeadline(time.Now().Add(3 * g.cfg.Ping)) // of a closed connection the read fails
		m, err := s.read()
		if err != nil {
			return err
		}
		g.handle(s, m)
	}
}

// read returns the next stanza; other elements end the stream.
func (s *stream) read() (*stanza, error) {
	start, err := s.next()
	if err != nil {
		return nil, err
	}
	switch start.Name {
	case xml.Name{Space: "jabber:client", Local: "message"}, xml.Name{Space: "jabber:client", Local: "presence"},
		xml.Name{Space: "jabber:client", Local: "iq"}:
		m := &stanza{}
		return m, s.decode(m, start)
	}
	return nil, s.failed(start)
}

func (g *Gateway) handle(s *stream, m *stanza) {
	switch m.XMLName.Local {
	case "iq":
		g.iq(s, m)
	case "presence":
		g.presence(s, m)
	case "message":
		switch {
		case m.Result != nil:
			g.archived(s, m)
		case m.Type == "error":
			s.answered(m)
		case m.Type == "groupchat":
			g.groupchat(s, m)
		default:
			g.direct(s, m)
		}
	}
}

// iq handles the answers to the gateway's requests, and refuses requests of others but pings.
func (g *Gateway) iq(s *stream, m *stanza) {
	switch {
	case m.Type == "result" || m.Type == "error":
		if from := canonical(m.From); from == "" || from == canonical(s.jid) || from == domainOf(s.jid) || s.room(from) != nil {
			s.answered(m)
		}
	case m.Ping != nil:
		_ = s.write("<iq type='result' id='%s' to='%s'/>", esc(m.ID), esc(m.From)) // a failure ends the connection
	default:
		_ = s.write("<iq type='error' id='%s' to='%s'><error type='cancel'><service-unavailable "+
			"xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error></iq>", esc(m.ID), esc(m.From))
	}
}

func domainOf(jid string) string {
	_, domain, _ := strings.Cut(canonical(jid), "@")
	return domain
}

// direct passes a direct message to the hub.
func (g *Gateway) direct(s *stream, m *stanza) {
	from := canonical(m.From)
	if m.body() == "" || m.Type == "headline" || from == canonical(s.jid) || s.room(from) != nil { // or a private message in a room
		return
	}
	id := m.archiveID(canonical(s.jid))
	if id == "" && m.ID != "" { // unique for the sender
		id = from + " " + m.ID
	}
	g.Take(chat.Message{Account: from, Name: from, Text: strings.TrimSpace(m.body()), ID: id, ReplyTo: from}, g.replier(from, "chat"))
}

// replier returns a function that answers without blocking.
func (g *Gateway) replier(to, kind string) func(string) {
	return func(text string) {
		select {
		case g.replies <- reply{to, kind, text}:
		default: // more are waiting than people would read
		}
	}
}

func (g *Gateway) reply() {
	for {
		select {
		case <-g.Life().Done():
			return
		case r := <-g.replies:
			if s := g.link.Current(); s != nil {
				_ = s.write("<message type='%s' to='%s'><body>%s</body></message>", r.kind, esc(r.to), esc(r.text)) // a failure ends the connection
			}
		}
	}
}

// ready waits until the gateway is connected and, unless room is empty, in the room.
func (g *Gateway) ready(ctx context.Context, name string) (*stream, error) {
	ctx, cancel := context.WithTimeout(ctx, readyWait)
	defer cancel()
	s, ok := g.link.Wait(ctx, func(s *stream) bool { return name == "" || s.in(name) })
	switch {
	case ok:
		return s, nil
	case s == nil:
		return nil, fmt.Errorf("not connected to the XMPP server")
	}
	return nil, fmt.Errorf("not in the room %s", name)
}
