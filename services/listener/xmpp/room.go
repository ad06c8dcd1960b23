package xmpp

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"skandha.dev/services/listener/chat"
)

const nsMUC = "http://jabber.org/protocol/muc"

// room returns a room of the configuration; nil if it is none.
func (s *stream) room(name string) *room {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rooms[name]
}

// in reports whether the gateway is in a room.
func (s *stream) in(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.rooms[name]
	return r != nil && r.joined
}

// nick returns the gateway's nickname in a room.
func (s *stream) nick(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.rooms[name]; r != nil {
		return r.nick
	}
	return ""
}

// join asks to enter the rooms that the gateway is not in.
func (g *Gateway) join(s *stream) {
	for name := range g.cfg.Rooms {
		if !s.in(name) {
			_ = s.write("<presence to='%s/%s'><x xmlns='%s'><history maxstanzas='0'/></x></presence>", esc(name), esc(s.nick(name)),
				nsMUC) // a failure ends the connection
		}
	}
}

// assess reports the rooms that the gateway is not in.
func (g *Gateway) assess(s *stream) {
	var troubles []string
	for name := range g.cfg.Rooms {
		if !s.in(name) {
			troubles = append(troubles, "not in "+name)
		}
	}
	slices.Sort(troubles)
	g.Works(troubles...)
}

// presence learns who is in a room, and whether the gateway is (XEP-0045, section 7).
func (g *Gateway) presence(s *stream, m *stanza) {
	name, nick := canonical(m.From), resource(m.From)
	r := s.room(name)
	if r == nil {
		return
	}
	s.mu.Lock()
	defer func() { s.mu.Unlock(); g.link.Changed(); g.assess(s) }()
	own := m.User.status("110") || m.Type != "" && nick == r.nick
	switch {
	case m.Type == "error":
		why := "unknown reason"
		if m.Error != nil {
			why = m.Error.String()
		}
		g.Log().Warn("cannot join a room", "room", name, "reason", why)
		if strings.HasPrefix(why, "conflict") {
			r.nick = g.cfg.Nick + "_" + strconv.Itoa(rand.IntN(1000))
		}
	case m.Type == "unavailable" && own && m.User.status("303"): // a new nickname
		delete(r.accounts, nick)
		r.nick = m.User.Items[0].Nick
	case m.Type == "unavailable" && own:
		g.Log().Warn("not in a room any more; it is joined again", "room", name)
		r.joined, r.accounts = false, map[string]string{}
	case m.Type == "unavailable":
		delete(r.accounts, nick)
	case m.Type == "":
		delete(r.accounts, nick)
		if m.User != nil && len(m.User.Items) > 0 && m.User.Items[0].JID != "" {
			r.accounts[nick] = canonical(m.User.Items[0].JID)
		}
		if m.User.status("110") {
			r.joined, r.nick = true, nick
			if !m.User.status("100") {
				g.Log().Info("joined a room that may hide accounts; if nobody may talk, let it show them", "room", name)
			}
		}
	}
}

// groupchat passes a message of a room to the hub, unless it is the gateway's.
func (g *Gateway) groupchat(s *stream, m *stanza) {
	name, nick := canonical(m.From), resource(m.From)
	r := s.room(name)
	if r == nil || nick == "" {
		return
	}
	s.mu.Lock()
	own, account := nick == r.nick, r.accounts[nick]
	s.mu.Unlock()
	if own {
		s.answered(m)
		return
	}
	if m.body() == "" || m.Delay != nil { // history
		return
	}
	msg := chat.Message{Room: name, Account: account, Name: nick, ID: m.archiveID(name), ReplyTo: name}
	if msg.ID == "" && m.ID != "" {
		msg.ID = nick + " " + m.ID
	}
	msg.Text, msg.Addressed = chat.Addressed(strings.TrimSpace(m.body()), s.nick(name))
	g.Take(msg, g.replier(name, "groupchat"))
}
