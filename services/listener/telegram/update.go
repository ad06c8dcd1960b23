package telegram

import (
	"strconv"
	"strings"
	"unicode/utf16"
)

// update is something that happened, with what the gateway reads of it.
type update struct {
	ID       int64    `json:"update_id"`
	Message  *message `json:"message"`
	Callback *press   `json:"callback_query"`
}

// message is a message of a chat.
type message struct {
	ID         int64    `json:"message_id"`
	From       *user    `json:"from"`
	SenderChat *place   `json:"sender_chat"` // it is sent as a channel or a group, not as a person
	Chat       place    `json:"chat"`
	Topic      int64    `json:"message_thread_id"`
	InTopic    bool     `json:"is_topic_message"`
	Text       string   `json:"text"`
	Entities   []entity `json:"entities"`
	ReplyTo    *message `json:"reply_to_message"`
}

type user struct {
	ID       int64  `json:"id"`
	Bot      bool   `json:"is_bot"`
	Username string `json:"username"`
	Name     string `json:"first_name"`
}

type place struct {
	ID   int64  `json:"id"`
	Type string `json:"type"` // private, group, supergroup or channel
}

// entity is a part of a text; offset and length count UTF-16 units.
type entity struct {
	Type   string `json:"type"`
	Offset int    `json:"offset"`
	Length int    `json:"length"`
}

// press is a button that somebody pressed.
type press struct {
	ID      string   `json:"id"`
	From    user     `json:"from"`
	Message *message `json:"message"`
	Data    string   `json:"data"`
}

// room and topic name the conversation; the room of a private chat is empty.
func (m *message) room() string {
	if m.Chat.Type == "private" {
		return ""
	}
	return strconv.FormatInt(m.Chat.ID, 10)
}

func (m *message) topic() string {
	if !m.InTopic || m.Topic == 0 {
		return ""
	}
	return strconv.FormatInt(m.Topic, 10)
}

// account returns the id of the person who sent the message; empty if no person did.
func (m *message) account() string {
	if m.From == nil || m.SenderChat != nil {
		return ""
	}
	return strconv.FormatInt(m.From.ID, 10)
}

// addressed reports whether a message mentions the bot or replies to it, and returns the text without a
// mention at its beginning.
func (m *message) addressed(bot user) (text string, ok bool) {
	text = strings.TrimSpace(strings.ToValidUTF8(m.Text, "\uFFFD"))
	units := utf16.Encode([]rune(m.Text))
	for _, e := range m.Entities {
		if e.Type != "mention" || e.Offset < 0 || e.Length <= 0 || e.Offset+e.Length > len(units) {
			continue
		}
		name := string(utf16.Decode(units[e.Offset : e.Offset+e.Length]))
		if strings.EqualFold(name, "@"+bot.Username) {
			if e.Offset == 0 {
				text = strings.TrimLeft(strings.TrimSpace(strings.ToValidUTF8(string(utf16.Decode(units[e.Length:])), "\uFFFD")), ":, ")
			}
			return text, true
		}
	}
	return text, m.ReplyTo != nil && m.ReplyTo.From != nil && m.ReplyTo.From.ID == bot.ID
}
