package xmpp

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"skandha.dev/services/listener/chat"
)

const (
	nsMAM    = "urn:xmpp:mam:2"
	pageSize = 100
	maxPages = 50
	// clockSkew is how much the clocks of the bus and of the XMPP server may differ.
	clockSkew = 5 * time.Minute
)

// find looks for a message of the gateway in the archive of a room, or in its own (XEP-0313), from a
// time on.
func (g *Gateway) find(ctx context.Context, s *stream, at chat.Place, id string, since time.Time) (bool, error) {
	query := rand.Text()
	found := false
	s.mu.Lock()
	s.archive[query] = func(m *stanza) {
		if m.Origin.ID == id && m.Type != "error" {
			found = true
		}
	}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.archive, query)
		s.mu.Unlock()
	}()
	with := ""
	if at.Room == "" {
		with = field("with", at.Account)
	}
	after := ""
	for range maxPages {
		m, err := s.ask(ctx, "set", at.Room, fmt.Sprintf("<query xmlns='%s' queryid='%s'><x xmlns='jabber:x:data' type='submit'>"+
			"<field var='FORM_TYPE' type='hidden'><value>%s</value></field>%s%s</x>"+
			"<set xmlns='http://jabber.org/protocol/rsm'><max>%d</max>%s</set></query>",
			nsMAM, query, nsMAM, field("start", since.Add(-clockSkew).UTC().Format(time.RFC3339)), with, pageSize, after))
		if err != nil {
			return false, err
		}
		s.mu.Lock()
		have := found // the results come before the answer
		s.mu.Unlock()
		switch {
		case have:
			return true, nil
		case m.Fin == nil:
			return false, errors.New("the answer is no page of an archive")
		case m.Fin.Complete == "true" || m.Fin.Complete == "1":
			return false, nil
		case m.Fin.Set.Last == "":
			return false, errors.New("the archive is not complete")
		}
		after = "<after>" + esc(m.Fin.Set.Last) + "</after>"
	}
	return false, fmt.Errorf("the archive has more than %d messages since", maxPages*pageSize)
}

func field(name, value string) string {
	return "<field var='" + name + "'><value>" + esc(value) + "</value></field>"
}

// archived passes a message of an archive to the query that asked for it. Only the archives that
// the gateway asks are believed.
func (g *Gateway) archived(s *stream, m *stanza) {
	from := canonical(m.From)
	if from != "" && from != canonical(s.jid) && s.room(from) == nil || m.Result.Forwarded.Message == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if take := s.archive[m.Result.Query]; take != nil {
		take(m.Result.Forwarded.Message)
	}
}
