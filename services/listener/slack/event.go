package slack

import (
	"encoding/json"
	"regexp"
	"strings"
)

// envelope is a message of Socket Mode.
type envelope struct {
	ID      string          `json:"envelope_id"`
	Type    string          `json:"type"` // hello, disconnect, events_api or interactive
	Reason  string          `json:"reason"`
	Payload json.RawMessage `json:"payload"`
}

// event is a message of a conversation.
type event struct {
	Type    string `json:"type"`
	Subtype string `json:"subtype"`
	Channel string `json:"channel"`
	Kind    string `json:"channel_type"` // im: a direct message
	User    string `json:"user"`
	Bot     string `json:"bot_id"`
	Text    string `json:"text"`
	TS      string `json:"ts"` // unique in the channel
	Thread  string `json:"thread_ts"`
}

// action is a button that somebody pressed.
type action struct {
	Type string `json:"type"` // block_actions
	User struct {
		ID string `json:"id"`
	} `json:"user"`
	Channel struct {
		ID string `json:"id"`
	} `json:"channel"`
	Message struct {
		Thread string `json:"thread_ts"`
	} `json:"message"`
	Actions []struct {
		Value string `json:"value"`
		At    string `json:"action_ts"`
	} `json:"actions"`
}

// thread returns the thread that a message is in; empty if it is not, or begins one.
func (e event) thread() string {
	if e.Thread == e.TS {
		return ""
	}
	return e.Thread
}

var (
	reference = regexp.MustCompile(`<([^<>|]*)(?:\|([^<>]*))?>`)
	entities  = strings.NewReplacer("&lt;", "<", "&gt;", ">", "&amp;", "&")
	escaped   = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")
)

// addressed reports whether a text mentions the bot, and returns it as people see it, without a mention at
// its beginning.
func addressed(raw, bot string) (text string, ok bool) {
	mention := "<@" + bot + ">"
	ok = strings.Contains(raw, mention)
	if rest, found := strings.CutPrefix(strings.TrimSpace(raw), mention); found {
		raw = strings.TrimLeft(rest, ":, ")
	}
	raw = reference.ReplaceAllStringFunc(raw, func(s string) string {
		m := reference.FindStringSubmatch(s)
		target, label := m[1], m[2]
		switch {
		case strings.HasPrefix(target, "#") && label != "":
			return "#" + label
		case strings.HasPrefix(target, "@"), strings.HasPrefix(target, "#"), strings.HasPrefix(target, "!"):
			return target
		case label != "" && label != target:
			return label + " (" + target + ")"
		}
		return target
	})
	return strings.TrimSpace(strings.ToValidUTF8(entities.Replace(raw), "\uFFFD")), ok
}
