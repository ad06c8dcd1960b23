package matrix

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/listener/chat"
	"skandha.dev/services/listener/contract"
)

const (
	longPoll = 30 * time.Second
	syncWait = longPoll + 30*time.Second
	callWait = 30 * time.Second
	pageSize = 100
	maxPages = 10 // of a gap in a timeline, or of a probe
	prefix   = "/_matrix/client/v3"
	// filter leaves out what the gateway does not read.
	filter = `{"presence":{"types":[]},"account_data":{"types":[]},"room":{"account_data":{"types":[]},"ephemeral":{"types":[]},` +
		`"timeline":{"limit":100,"types":["m.room.message","m.room.encrypted"]},"state":{"types":[]}}}`
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
	hub, err := chat.New(name, "matrix", cfg.Config, deps)
	if err != nil {
		return nil, err
	}
	return &Gateway{Hub: hub, cfg: cfg, api: chat.NewAPI(cfg.Homeserver, http.Header{"Authorization": {"Bearer " + token}})}, nil
}

// OnStart implements [contract.Listener].
func (g *Gateway) OnStart(_ context.Context, e contract.Emitter) error {
	if err := g.Start(e); err != nil {
		return err
	}
	go g.Connect(g.cfg.Homeserver, g.read)
	return nil
}

// OnStop implements [contract.Listener].
func (g *Gateway) OnStop(ctx context.Context) error { return g.Stop(ctx) }

// read joins the rooms and handles what happens in them until something fails.
func (g *Gateway) read(ctx context.Context) error {
	at, err := g.Position(ctx)
	if err != nil {
		return err
	}
	for room := range g.cfg.Rooms {
		if err := g.join(ctx, room); err != nil {
			return err
		}
	}
	for {
		batch, err := g.sync(ctx, at.Value)
		if err != nil {
			return chat.Waited(ctx, err)
		}
		g.Works()
		if at.Value != "" { // else it begins now
			if err := g.batch(ctx, at.Value, batch); err != nil {
				return chat.Waited(ctx, err)
			}
		}
		if err := at.Store(ctx, batch.Next); err != nil {
			return err
		}
	}
}

func (g *Gateway) sync(ctx context.Context, since string) (batch synced, err error) {
	q := url.Values{"filter": {filter}, "timeout": {"0"}}
	if since != "" {
		q.Set("since", since)
		q.Set("timeout", fmt.Sprint(longPoll.Milliseconds()))
	}
	ctx, cancel := context.WithTimeout(ctx, syncWait)
	defer cancel()
	err = g.api.Do(ctx, http.MethodGet, prefix+"/sync?"+q.Encode(), nil, &batch)
	if err == nil && batch.Next == "" {
		err = errors.New("the answer of /sync has no next_batch")
	}
	return batch, err
}

// batch handles what has happened since the position before.
func (g *Gateway) batch(ctx context.Context, since string, batch synced) error {
	for room, invite := range batch.Rooms.Invite {
		_, configured := g.cfg.Rooms[room]
		if by := inviter(invite.State.Events, g.cfg.User); configured || g.MayTalk("", by) {
			if err := g.join(ctx, room); err != nil {
				g.Log().Warn("cannot accept an invitation", "room", room, "by", by, "error", err)
			}
		}
	}
	for room, joined := range batch.Rooms.Join {
		events := joined.Timeline.Events
		if joined.Timeline.Limited {
			missed, err := g.missed(ctx, room, joined.Timeline.Prev, since)
			if err != nil {
				return err
			}
			events = append(missed, events...)
		}
		for _, e := range events {
			if err := g.event(ctx, room, e); err != nil {
				return err
			}
		}
	}
	return nil
}

// missed reads the messages between two positions of a room, oldest first.
func (g *Gateway) missed(ctx context.Context, room, from, to string) (out []event, err error) {
	for range maxPages {
		p, err := g.messages(ctx, room, from, to)
		if err != nil {
			return nil, err
		}
		out = append(out, p.Chunk...)
		if p.End == "" || len(p.Chunk) == 0 {
			slices.Reverse(out)
			return out, nil
		}
		from = p.End
	}
	g.Log().Warn("a room has more messages than are read; older ones are left out", "room", room, "read", len(out))
	slices.Reverse(out)
	return out, nil
}

// messages reads a page of a room, newest first.
func (g *Gateway) messages(ctx context.Context, room, from, to string) (p page, err error) {
	q := url.Values{"dir": {"b"}, "limit": {fmt.Sprint(pageSize)}}
	if from != "" {
		q.Set("from", from)
	}
	if to != "" {
		q.Set("to", to)
	}
	ctx, cancel := context.WithTimeout(ctx, callWait)
	defer cancel()
	return p, g.api.Do(ctx, http.MethodGet, prefix+"/rooms/"+url.PathEscape(room)+"/messages?"+q.Encode(), nil, &p)
}

func (g *Gateway) join(ctx context.Context, room string) error {
	ctx, cancel := context.WithTimeout(ctx, callWait)
	defer cancel()
	if err := g.api.Do(ctx, http.MethodPost, prefix+"/join/"+url.PathEscape(room), struct{}{}, nil); err != nil {
		return fmt.Errorf("joining %s: %w", room, err)
	}
	return nil
}

// event handles one event of a room.
func (g *Gateway) event(ctx context.Context, room string, e event) error {
	if e.Sender == g.cfg.User {
		return nil
	}
	if e.Type == typeEncrypted {
		g.Log().Warn("a message is end-to-end encrypted, which the gateway cannot read; use a room without encryption", "room", room)
		return nil
	}
	c, ok := e.message()
	if !ok {
		return nil
	}
	m := chat.Message{Account: e.Sender, Name: e.Sender, Text: c.text(), ID: e.ID, Program: c.Type == notice}
	if _, ok := g.cfg.Rooms[room]; ok {
		m.Room, m.Thread = room, c.thread()
		name, _, _ := strings.Cut(strings.TrimPrefix(g.cfg.User, "@"), ":")
		m.Text, m.Addressed = chat.Addressed(m.Text, name)
		m.Addressed = m.Addressed || c.mentions(g.cfg.User)
		m.ReplyTo = address(room, m.Thread, "")
	} else {
		direct, err := g.private(ctx, room, e.Sender)
		if err != nil || !direct {
			return err
		}
		m.ReplyTo = address(room, "", e.Sender)
	}
	reply, err := g.Until(ctx, m)
	if err != nil || reply == "" {
		return err
	}
	if err := g.put(ctx, room, m.Thread, "r"+idOf(e.ID), content{Type: notice, Body: reply}); err != nil {
		g.Log().Info("a reply was not sent", "room", room, "error", err)
	}
	return nil
}

// private reports whether a room is a conversation of a person and the gateway alone.
func (g *Gateway) private(ctx context.Context, room, person string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, callWait)
	defer cancel()
	var members struct {
		Chunk []struct {
			State   string `json:"state_key"`
			Content struct {
				Membership string `json:"membership"`
			} `json:"content"`
		} `json:"chunk"`
	}
	err := g.api.Do(ctx, http.MethodGet, prefix+"/rooms/"+url.PathEscape(room)+"/members?not_membership=leave", nil, &members)
	if r, ok := errors.AsType[*chat.Refusal](err); ok && (r.Status == http.StatusForbidden || r.Status == http.StatusNotFound) {
		return false, nil // not a member any more
	}
	if err != nil {
		return false, err
	}
	both := 0
	for _, m := range members.Chunk {
		switch {
		case m.Content.Membership == "ban":
		case m.State == person && m.Content.Membership == "join", m.State == g.cfg.User:
			both++
		default:
			return false, nil
		}
	}
	return both == 2, nil
}
