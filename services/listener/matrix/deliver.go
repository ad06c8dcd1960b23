package matrix

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/text"
	"skandha.dev/services/listener/chat"
	"skandha.dev/services/listener/contract"
)

const (
	maxBody = 40 << 10 // bytes; an event has at most 64 KiB
	// remembered is how long every server recognizes a transaction id, and more than a request takes.
	remembered = 10 * time.Minute
	// clockSkew is how much the clocks of the bus and of the homeserver may differ.
	clockSkew = 5 * time.Minute
)

// address is where an answer goes: a room, and a thread of it or the person whom it is for, separated
// by a space.
func address(room, thread, person string) string {
	return strings.TrimSpace(room + " " + thread + person)
}

// idOf derives the id of a message from the delivery's key.
func idOf(key string) string {
	sum := sha256.Sum256([]byte("matrix " + key))
	return hex.EncodeToString(sum[:16])
}

// target is where a message goes.
type target struct {
	room string // id
	chat.Place
}

func (g *Gateway) target(to string) (t target, err error) {
	room, rest, _ := strings.Cut(to, " ")
	_, configured := g.cfg.Rooms[room]
	switch {
	case configured && !strings.HasPrefix(rest, "@"):
		return target{room, chat.Place{Room: room, Thread: rest}}, nil
	case roomID.MatchString(room) && userID.MatchString(rest) && g.cfg.Direct && !configured:
		return target{room, chat.Place{Account: rest}}, nil
	}
	return t, fmt.Errorf("%q is neither a room of listener %s nor a direct chat (ROOM @USER)", to, g.Name())
}

// Deliver implements [contract.Gateway].
func (g *Gateway) Deliver(ctx context.Context, m contract.Outgoing) tool.Result {
	g.sending.Lock()
	defer g.sending.Unlock()
	to, err := g.target(m.To)
	if err != nil {
		return chat.Permanent(err)
	}
	if to.Room == "" {
		alone, err := g.private(ctx, to.room, to.Account)
		if err != nil {
			return tool.Failure(tool.CodeFailed, "reading who is in the room: "+err.Error())
		}
		if !alone {
			return chat.Permanent(fmt.Errorf("%s is not a conversation with %s alone any more", to.room, to.Account))
		}
	}
	body, err := g.body(ctx, to, m)
	if err != nil {
		return tool.Failure(tool.CodeFailed, err.Error())
	}
	if body.Body == "" {
		return chat.Permanent(errors.New("the message has no text"))
	}
	if err := m.Begin(ctx); err != nil {
		return tool.Failure(tool.CodeFailed, err.Error())
	}
	return g.send(ctx, to, body)
}

func (g *Gateway) body(ctx context.Context, to target, m contract.Outgoing) (content, error) {
	shown, err := g.Show(ctx, to.Place, m)
	return content{Type: notice, Body: text.Cut(strings.TrimSpace(shown.Text), maxBody), ID: idOf(m.Key)}, err
}

func (g *Gateway) send(ctx context.Context, to target, body content) tool.Result {
	if err := g.put(ctx, to.room, to.Thread, "d"+body.ID, body); err != nil {
		return chat.Undelivered(err)
	}
	return tool.OK(map[string]any{"to": to.room, "id": body.ID})
}

// put sends a message under a transaction id.
func (g *Gateway) put(ctx context.Context, room, thread, transaction string, c content) error {
	if thread != "" {
		c.Relates = relation{Type: relThread, Event: thread, FallingBack: true}
		c.Relates.InReply.Event = thread
	}
	ctx, cancel := context.WithTimeout(ctx, callWait)
	defer cancel()
	path := prefix + "/rooms/" + url.PathEscape(room) + "/send/" + typeMessage + "/" + transaction
	var answer struct {
		ID string `json:"event_id"`
	}
	err := g.api.Do(ctx, http.MethodPut, path, c, &answer)
	if err == nil && answer.ID == "" {
		err = errors.New("the answer names no event")
	}
	return err
}

// Probe implements [contract.Gateway].
func (g *Gateway) Probe(ctx context.Context, m contract.Outgoing, b tool.Begun) tool.Result {
	g.sending.Lock()
	defer g.sending.Unlock()
	to, err := g.target(m.To)
	if err != nil {
		return tool.Failure(tool.CodeOutcomeUnknown, err.Error())
	}
	late := time.Since(b.At) > remembered && time.Since(b.Until) > time.Minute
	found, err := g.find(ctx, to.room, idOf(m.Key), b.At)
	switch {
	case err != nil:
		return tool.Failure(tool.CodeOutcomeUnknown, "the room cannot be read: "+err.Error())
	case found:
		return tool.OK(map[string]any{"to": to.room, "id": idOf(m.Key), "found_in_room": true})
	case late:
		return tool.Failure(tool.CodeNotRun, "the room does not have the message, and the request that would send it has ended")
	}
	body, err := g.body(ctx, to, m)
	if err != nil {
		return tool.Failure(tool.CodeOutcomeUnknown, err.Error())
	}
	r := g.send(ctx, to, body)
	if !r.Success && r.Error.Code != tool.CodeOutcomeUnknown { // this request was refused; the earlier one may not have been
		r = tool.Failure(tool.CodeOutcomeUnknown, r.Error.Message)
	}
	return r
}

// find looks for a message of the gateway among those of a room that are not older than since.
func (g *Gateway) find(ctx context.Context, room, id string, since time.Time) (bool, error) {
	from, removed := "", false
	for range maxPages {
		p, err := g.messages(ctx, room, from, "")
		if err != nil {
			return false, err
		}
		ended := p.End == "" || len(p.Chunk) == 0
		for _, e := range p.Chunk {
			var c content
			switch {
			case e.Sender != g.cfg.User:
			case json.Unmarshal(e.Content, &c) == nil && c.ID == id:
				return true, nil
			case e.Time < since.Add(-clockSkew).UnixMilli():
				ended = true
			case c.Type == "": // a moderator has removed it
				removed = true
			}
		}
		if ended && removed {
			return false, errors.New("a message of the gateway was removed since, which may be this one")
		}
		if ended {
			return false, nil
		}
		from = p.End
	}
	return false, fmt.Errorf("it has more than %d messages since", maxPages*pageSize)
}
