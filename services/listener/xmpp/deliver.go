package xmpp

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/text"
	"skandha.dev/services/listener/chat"
	"skandha.dev/services/listener/contract"
)

const (
	readyWait   = 10 * time.Second // for a connection
	confirmWait = 30 * time.Second // for the server to confirm a message
	maxBody     = 40 << 10         // bytes
)

// idOf derives a message's id from the delivery's key. Others see it, so that it is not the key.
func idOf(key string) string {
	sum := sha256.Sum256([]byte("xmpp " + key))
	return "sk-" + hex.EncodeToString(sum[:16])
}

// Deliver implements [contract.Gateway].
func (g *Gateway) Deliver(ctx context.Context, m contract.Outgoing) tool.Result {
	g.sending.Lock()
	defer g.sending.Unlock()
	at, err := g.target(m.To)
	if err != nil {
		return chat.Permanent(err)
	}
	s, err := g.ready(ctx, at.Room)
	if err != nil {
		return tool.Failure(tool.CodeFailed, err.Error())
	}
	shown, err := g.Show(ctx, at, m)
	if err != nil {
		return tool.Failure(tool.CodeFailed, err.Error())
	}
	body := strings.TrimSpace(strings.Join(chat.Plain(shown.Text), "\n"))
	if body == "" {
		return chat.Permanent(errors.New("the message has no text"))
	}
	return g.send(ctx, s, at, text.Cut(body, maxBody), m)
}

// target reads where a message goes: a room of the configuration, or a bare JID.
func (g *Gateway) target(to string) (at chat.Place, err error) {
	name := canonical(to)
	if _, ok := g.cfg.Rooms[name]; ok {
		return chat.Place{Room: name}, nil
	}
	if !bare.MatchString(name) || !g.cfg.Direct {
		return at, fmt.Errorf("%q is neither a room of listener %s nor a person whom direct messages are for", to, g.Name())
	}
	return chat.Place{Account: name}, nil
}

// send sends a message and waits for the server to confirm it.
func (g *Gateway) send(ctx context.Context, s *stream, at chat.Place, body string, m contract.Outgoing) tool.Result {
	id := idOf(m.Key)
	answer, forget := s.expect(id)
	defer forget()
	if err := m.Begin(ctx); err != nil {
		return tool.Failure(tool.CodeFailed, err.Error())
	}
	kind, to := "groupchat", at.Room
	if to == "" {
		kind, to = "chat", at.Account
	}
	err := s.write("<message type='%s' to='%s' id='%s'><body>%s</body><origin-id xmlns='urn:xmpp:sid:0' id='%s'/></message>",
		kind, esc(to), id, esc(body), id)
	if err != nil {
		return tool.Failure(tool.CodeOutcomeUnknown, "the connection was lost: "+err.Error())
	}
	ctx, cancel := context.WithTimeout(ctx, confirmWait)
	defer cancel()
	if at.Room == "" { // the server handles the stanzas of a stream in order
		if _, err := s.ask(ctx, "get", domainOf(s.jid), "<ping xmlns='urn:xmpp:ping'/>"); err != nil {
			return tool.Failure(tool.CodeOutcomeUnknown, "the server has not confirmed the message: "+err.Error())
		}
		select {
		case r := <-answer:
			return outcome(r, to)
		default:
			return tool.OK(map[string]any{"to": to, "id": id})
		}
	}
	select {
	case r := <-answer:
		return outcome(r, to)
	case <-s.lost:
		return tool.Failure(tool.CodeOutcomeUnknown, "the connection was lost before the room had reflected the message")
	case <-ctx.Done():
		return tool.Failure(tool.CodeOutcomeUnknown, "the room has not reflected the message in time")
	}
}

// outcome reads the reflection of a message, or its refusal.
func outcome(r *stanza, to string) tool.Result {
	if r.Type != "error" {
		return tool.OK(map[string]any{"to": to, "id": r.ID})
	}
	why := "unknown reason"
	if r.Error != nil {
		why = r.Error.String()
		if r.Error.Type == "cancel" || r.Error.Type == "modify" {
			return chat.Permanent(fmt.Errorf("%s refused the message: %s", to, why))
		}
	}
	return tool.Failure(tool.CodeFailed, fmt.Sprintf("%s refused the message: %s", to, why))
}

// Probe implements [contract.Gateway].
func (g *Gateway) Probe(ctx context.Context, m contract.Outgoing, b tool.Begun) tool.Result {
	g.sending.Lock()
	defer g.sending.Unlock()
	at, err := g.target(m.To)
	if err != nil {
		return tool.Failure(tool.CodeOutcomeUnknown, err.Error())
	}
	s, err := g.anew(ctx, at.Room)
	if err != nil {
		return tool.Failure(tool.CodeOutcomeUnknown, "the archive cannot be asked: "+err.Error())
	}
	found, err := g.find(ctx, s, at, idOf(m.Key), b.At)
	switch {
	case err != nil:
		return tool.Failure(tool.CodeOutcomeUnknown, "the archive cannot be asked: "+err.Error())
	case found:
		return tool.OK(map[string]any{"to": m.To, "id": idOf(m.Key), "found_in_archive": true})
	case resource(s.jid) != g.resource():
		err = errors.New("the server gives other resources, so that an older connection may still be open")
	case at.Room != "":
		err = g.keeps(ctx, s, at.Room)
	}
	if err != nil {
		return tool.Failure(tool.CodeOutcomeUnknown, "the archive does not have the message, but "+err.Error())
	}
	return tool.Failure(tool.CodeNotRun, "the archive does not have the message, and the connection that would send it has ended")
}

// keeps returns why the archive of a room may lack messages that the gateway has sent: they may wait on
// the way to another server, or have gone with an earlier room of the same name.
func (g *Gateway) keeps(ctx context.Context, s *stream, name string) error {
	if domain := domainOf(s.jid); domainOf(name) != domain && !strings.HasSuffix(domainOf(name), "."+domain) {
		return errors.New("the room is on another server: it may still arrive")
	}
	m, err := s.ask(ctx, "get", name, "<query xmlns='http://jabber.org/protocol/disco#info'/>")
	if err != nil {
		return err
	}
	for _, f := range m.Features {
		if f.Var == "muc_persistent" {
			return nil
		}
	}
	return errors.New("the room is not persistent: its archive ends when the last person leaves")
}

// anew returns a stream that is newer than the attempt: taking the resource has ended all others, so
// that the archive has everything that they have sent.
func (g *Gateway) anew(ctx context.Context, name string) (*stream, error) {
	if old := g.link.Current(); old != nil {
		_ = old.Close()
		select {
		case <-old.lost:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return g.ready(ctx, name)
}
