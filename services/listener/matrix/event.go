package matrix

import (
	"encoding/json"
	"slices"
	"strings"
)

// event is a message event, with what the gateway reads of it.
type event struct {
	Type    string          `json:"type"`
	ID      string          `json:"event_id"`
	Sender  string          `json:"sender"`
	State   *string         `json:"state_key"`
	Content json.RawMessage `json:"content"`
	Time    int64           `json:"origin_server_ts"` // in milliseconds; servers of other people may lie
}

// message returns the content of an event that is a new text.
func (e event) message() (c content, ok bool) {
	if e.Type != typeMessage || e.State != nil || json.Unmarshal(e.Content, &c) != nil {
		return c, false
	}
	return c, c.Relates.Type != relReplace && (c.Type == textMessage || c.Type == notice) && c.text() != ""
}

// content of a message.
type content struct {
	Type     string   `json:"msgtype"`
	Body     string   `json:"body"`
	Mentions mentions `json:"m.mentions,omitzero"`
	Relates  relation `json:"m.relates_to,omitzero"`
	// ID identifies what a gateway sent, for probes.
	ID string `json:"dev.skandha.id,omitempty"`
}

type mentions struct {
	Users []string `json:"user_ids,omitempty"`
}

type relation struct {
	Type    string `json:"rel_type,omitempty"`
	Event   string `json:"event_id,omitempty"`
	InReply struct {
		Event string `json:"event_id"`
	} `json:"m.in_reply_to,omitzero"`
	FallingBack bool `json:"is_falling_back,omitempty"`
}

const (
	typeMessage   = "m.room.message"
	typeEncrypted = "m.room.encrypted"
	textMessage   = "m.text"
	notice        = "m.notice"
	relThread     = "m.thread"
	relReplace    = "m.replace"
)

// thread returns the first event of the thread that a message is in; empty: none.
func (c content) thread() string {
	if c.Relates.Type == relThread {
		return c.Relates.Event
	}
	return ""
}

// text returns the text without the quotation with which older clients begin a reply.
func (c content) text() string {
	body := c.Body
	if c.Relates.InReply.Event != "" {
		for strings.HasPrefix(body, "> ") {
			_, body, _ = strings.Cut(body, "\n")
		}
	}
	return strings.TrimSpace(strings.ToValidUTF8(body, "\uFFFD"))
}

// mentions reports whether a message mentions a user by its id.
func (c content) mentions(user string) bool { return slices.Contains(c.Mentions.Users, user) }

// page is an answer of /messages.
type page struct {
	Chunk []event `json:"chunk"`
	End   string  `json:"end"`
}

// synced is an answer of /sync.
type synced struct {
	Next  string `json:"next_batch"`
	Rooms struct {
		Join map[string]struct {
			Timeline struct {
				Events  []event `json:"events"`
				Limited bool    `json:"limited"`
				Prev    string  `json:"prev_batch"`
			} `json:"timeline"`
		} `json:"join"`
		Invite map[string]struct {
			State struct {
				Events []event `json:"events"`
			} `json:"invite_state"`
		} `json:"invite"`
	} `json:"rooms"`
}

// inviter returns who has invited the user.
func inviter(events []event, user string) string {
	for _, e := range events {
		if e.Type == "m.room.member" && e.State != nil && *e.State == user {
			return e.Sender
		}
	}
	return ""
}
