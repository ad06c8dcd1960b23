package xmpp

import (
	"encoding/xml"
	"strings"
)

// stanza is a message, a presence or an iq, with what the gateway reads of it.
type stanza struct {
	XMLName xml.Name
	ID      string `xml:"id,attr"`
	From    string `xml:"from,attr"`
	To      string `xml:"to,attr"`
	Type    string `xml:"type,attr"`

	Body     []string  `xml:"jabber:client body"`
	Error    *failure  `xml:"jabber:client error"`
	Delay    *delay    `xml:"urn:xmpp:delay delay"`
	Origin   marked    `xml:"urn:xmpp:sid:0 origin-id"`
	Archived []marked  `xml:"urn:xmpp:sid:0 stanza-id"`
	User     *user     `xml:"http://jabber.org/protocol/muc#user x"`
	Result   *archived `xml:"urn:xmpp:mam:2 result"`
	Fin      *fin      `xml:"urn:xmpp:mam:2 fin"`
	Ping     *struct{} `xml:"urn:xmpp:ping ping"`
	Features []struct {
		Var string `xml:"var,attr"`
	} `xml:"http://jabber.org/protocol/disco#info query>feature"`
	Bind *struct {
		JID string `xml:"jid"`
	} `xml:"urn:ietf:params:xml:ns:xmpp-bind bind"`
}

// failure is why a stanza was refused.
type failure struct {
	Type       string    `xml:"type,attr"`
	Text       string    `xml:"urn:ietf:params:xml:ns:xmpp-stanzas text"`
	Conditions []element `xml:",any"`
}

type element struct{ XMLName xml.Name }

// String returns the condition, and the text if there is one.
func (f *failure) String() string {
	var parts []string
	for _, c := range f.Conditions {
		parts = append(parts, c.XMLName.Local)
	}
	if f.Text != "" {
		parts = append(parts, f.Text)
	}
	return strings.Join(parts, ": ")
}

type delay struct {
	Stamp string `xml:"stamp,attr"`
}

// marked is an id, and who gave it.
type marked struct {
	ID string `xml:"id,attr"`
	By string `xml:"by,attr"`
}

// user is what a room says of an occupant (XEP-0045).
type user struct {
	Items []struct {
		JID  string `xml:"jid,attr"`
		Nick string `xml:"nick,attr"`
	} `xml:"item"`
	Statuses []struct {
		Code string `xml:"code,attr"`
	} `xml:"status"`
}

func (u *user) status(code string) bool {
	if u == nil {
		return false
	}
	for _, s := range u.Statuses {
		if s.Code == code {
			return true
		}
	}
	return false
}

// archived is a message of an archive (XEP-0313).
type archived struct {
	ID        string `xml:"id,attr"`
	Query     string `xml:"queryid,attr"`
	Forwarded struct {
		Message *stanza `xml:"jabber:client message"`
	} `xml:"urn:xmpp:forward:0 forwarded"`
}

// fin ends a page of an archive.
type fin struct {
	Complete string `xml:"complete,attr"`
	Set      struct {
		Last string `xml:"last"`
	} `xml:"http://jabber.org/protocol/rsm set"`
}

// archiveID returns the id that an archive gave the message.
func (s *stanza) archiveID(by string) string {
	for _, a := range s.Archived {
		if canonical(a.By) == by {
			return a.ID
		}
	}
	return ""
}

// body returns the text of a message.
func (s *stanza) body() string {
	if len(s.Body) == 0 {
		return ""
	}
	return s.Body[0]
}

// esc returns a text as XML. Characters that XML does not have are replaced.
func esc(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a Builder never fails
	return b.String()
}
