package letter

import (
	"strings"

	"github.com/emersion/go-message"
)

// classify finds out whether a program wrote the letter, by RFC 3834 and what is common beside it.
func (l *Letter) classify(h message.Header) {
	media, _, _ := h.ContentType()
	value := func(key string) string { return strings.ToLower(strings.TrimSpace(h.Get(key))) }
	auto, _, _ := strings.Cut(value("Auto-Submitted"), ";")
	auto = strings.TrimSpace(auto)
	local, _, _ := strings.Cut(l.Sender(), "@")
	l.List = h.Has("List-Id") || h.Has("List-Post") || h.Has("List-Unsubscribe") || value("Precedence") == "list"
	switch precedence := value("Precedence"); {
	case h.Has("Return-Path") && value("Return-Path") == "<>":
		l.Bounce, l.Automatic = true, "its return path is empty"
	case media == "multipart/report":
		l.Bounce, l.Automatic = true, "it is a delivery report"
	case local == "mailer-daemon" || local == "postmaster":
		l.Bounce, l.Automatic = true, "it is from "+local
	case auto != "" && auto != "no":
		l.Automatic = "Auto-Submitted is " + auto
	case precedence == "bulk" || precedence == "junk" || precedence == "auto_reply":
		l.Automatic = "Precedence is " + precedence
	case h.Has("X-Autoreply") || h.Has("X-Autorespond") || h.Has("X-Autoresponder"):
		l.Automatic = "it is an automatic reply"
	}
}

// Loops returns why an answer to the letter could begin a loop of mails, or reach people who
// did not ask; "" if nothing says so. Own is the address of the account that received it.
func (l *Letter) Loops(own string, lists bool) string {
	switch {
	case Ours(l.MessageID, own):
		return "this account sent it"
	case strings.EqualFold(l.Sender(), own):
		return "it is from this account's own address"
	case l.Bounce:
		return l.Automatic
	case l.List && !lists:
		return "it came through a mailing list"
	case l.List && strings.HasPrefix(l.Automatic, "Precedence"): // as of all lists
		return ""
	}
	return l.Automatic
}
