package letter

import (
	"bytes"
	"fmt"
	"io"
	"mime"
	"net/mail"
	"strings"
	"time"

	"github.com/emersion/go-message"
	"github.com/emersion/go-message/charset"

	"skandha.dev/services/internal/text"
)

// Limits of what is read of a letter; see [DefaultLimits].
type Limits struct {
	Bytes       int64 // of the whole letter
	HeaderBytes int64
	Depth       int // of nested multiparts
	Parts       int
	TextBytes   int // of the text; the rest is left out
	Attachments int
}

// DefaultLimits are the limits that tools and listeners use.
func DefaultLimits() Limits {
	return Limits{
		Bytes: 25 << 20, HeaderBytes: 256 << 10, Depth: 20, Parts: 200, TextBytes: 128 << 10, Attachments: 32,
	}
}

const (
	maxFieldBytes = 2 << 10 // of a decoded header field that people see
	maxAddresses  = 100     // in one header field
	maxNotes      = 20
)

// Letter is an e-mail that was read.
type Letter struct {
	MessageID  string   // without angle brackets; "" if there is none
	InReplyTo  []string // likewise
	References []string
	From       []mail.Address
	ReplyTo    []mail.Address
	To, Cc     []mail.Address
	Subject    string
	Date       time.Time // zero if it is missing or invalid
	Text       string    // UTF-8 without control characters
	Files      []File    // the attachments
	// Automatic says why a program wrote the letter; "" if nothing says so. See [Letter.Loops].
	Automatic string
	List      bool     // it came through a mailing list
	Bounce    bool     // it reports a delivery, or has an empty return path
	Notes     []string // what was left out, or could not be decoded

	header message.Header
}

// File is an attachment.
type File struct {
	Name      string // for people; has no path and no control characters
	MediaType string
	Content   []byte
}

// Parse reads a letter. Size is the letter's size on the server; if it is larger than raw,
// only its beginning was fetched, and a note says so.
func Parse(raw []byte, size int64, limits Limits) *Letter {
	l := &Letter{}
	p := &parser{letter: l, limits: limits}
	size = max(size, int64(len(raw)))
	raw = raw[:min(int64(len(raw)), limits.Bytes)]
	if size > int64(len(raw)) {
		p.note("the letter has %d bytes; only the first %d were read", size, len(raw))
	}
	p.partial = size > int64(len(raw))
	e, err := message.ReadWithOptions(bytes.NewReader(raw), &message.ReadOptions{MaxHeaderBytes: limits.HeaderBytes})
	if e == nil {
		p.note("the header could not be read: %v", err)
		p.addText(clean(string(raw[:min(len(raw), limits.TextBytes)])))
		l.Text = p.text()
		return l
	}
	l.header = e.Header
	p.fields(e.Header)
	l.classify(e.Header)
	p.entity(e, err, 0)
	l.Text = p.text()
	return l
}

// fields reads the header fields that people see.
func (p *parser) fields(h message.Header) {
	l := p.letter
	l.MessageID = first(ids(h.Get("Message-Id")))
	l.InReplyTo = ids(h.Get("In-Reply-To"))
	l.References = ids(h.Get("References"))
	l.From, l.ReplyTo = p.addresses(h, "From"), p.addresses(h, "Reply-To")
	l.To, l.Cc = p.addresses(h, "To"), p.addresses(h, "Cc")
	l.Subject = p.field(h.Get("Subject"))
	l.Date, _ = mail.ParseDate(h.Get("Date"))
}

// decoder decodes encoded words. A word in an unknown charset stays as it is.
var decoder = mime.WordDecoder{CharsetReader: charset.Reader}

func (p *parser) field(s string) string {
	out, err := decoder.DecodeHeader(s)
	if err != nil {
		p.note("a header field could not be decoded: %v", err)
		out = s
	}
	return Line(text.Cut(out, maxFieldBytes))
}

func (p *parser) addresses(h message.Header, key string) []mail.Address {
	value := h.Get(key)
	if value == "" {
		return nil
	}
	list, err := (&mail.AddressParser{WordDecoder: &decoder}).ParseList(value)
	if err != nil {
		p.note("the field %s could not be read", key)
		return nil
	}
	if len(list) > maxAddresses {
		p.note("the field %s has %d addresses; only the first %d were read", key, len(list), maxAddresses)
		list = list[:maxAddresses]
	}
	out := make([]mail.Address, 0, len(list))
	for _, a := range list {
		out = append(out, mail.Address{Name: Line(text.Cut(a.Name, maxFieldBytes)), Address: clean(a.Address)})
	}
	return out
}

// Sender returns the address of the one author. It is "" if there are none or several, so that
// no rule about senders can be satisfied by one of them.
func (l *Letter) Sender() string {
	if len(l.From) != 1 {
		return ""
	}
	return strings.ToLower(l.From[0].Address)
}

// Format returns an address for people: "Name <local@domain>".
func Format(a mail.Address) string {
	if a.Name == "" {
		return a.Address
	}
	return a.Name + " <" + a.Address + ">"
}

// FormatAll returns addresses for people.
func FormatAll(list []mail.Address) []string {
	out := make([]string, len(list))
	for i, a := range list {
		out[i] = Format(a)
	}
	return out
}

func (p *parser) note(format string, args ...any) {
	if len(p.letter.Notes) < maxNotes {
		p.letter.Notes = append(p.letter.Notes, clean(text.Cut(fmt.Sprintf(format, args...), maxFieldBytes)))
	}
}

// clean returns valid UTF-8 without control characters other than line feed and tab, and
// without the characters that change the direction of text.
func clean(s string) string {
	s = strings.ToValidUTF8(strings.ReplaceAll(s, "\r\n", "\n"), "\uFFFD")
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case r == '\r':
			return '\n'
		case r < ' ' || r >= 0x7f && r < 0xa0 || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069:
			return -1
		case r >= 0xe0000 && r <= 0xe007f: // tags, which are invisible
			return -1
		}
		return r
	}, s)
}

// Line returns a text from a letter in one line, cleaned as that of a [Letter].
func Line(s string) string { return strings.Join(strings.Fields(clean(s)), " ") }

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

// readAll reads at most limit bytes, and as much as could be decoded before an error.
func readAll(r io.Reader, limit int64) (b []byte, cut bool, err error) {
	b, err = io.ReadAll(io.LimitReader(r, limit+1))
	if int64(len(b)) > limit {
		return b[:limit], true, nil
	}
	return b, false, err
}
