package event

import (
	"bytes"
	"encoding/json"
)

// parse decodes an event in the exact form that [Event.AppendJSON] writes, several times
// faster than encoding/json. It reports false if the event does not, or may not, have that
// form, which does not mean that it is invalid.
func parse(b []byte) (e Event, ok bool) {
	p := parser{rest: b}
	e = p.head()
	last := len(p.rest) - 1
	if p.failed || last < 1 || p.rest[last] != '}' {
		return Event{}, false
	}
	data := p.rest[:last]
	if space(data[0]) || space(data[last-1]) || !json.Valid(data) {
		return Event{}, false
	}
	e.Data = bytes.Clone(data)
	return e, true
}

// parseBatch decodes a batch in the exact form that [Commit.Encode] writes, as parse does.
func parseBatch(b []byte) (batch []Event, ok bool) {
	if !json.Valid(b) {
		return nil, false
	}
	p := parser{rest: bytes.Clone(b)} // that the events point into
	p.must("[")
	for more := true; more && !p.failed; more = p.may(",") {
		e := p.head()
		e.Data = p.object()
		p.must("}")
		batch = append(batch, e)
	}
	p.must("]")
	return batch, !p.failed && len(p.rest) == 0
}

func space(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

type parser struct {
	rest   []byte
	failed bool
}

// head reads the attributes of an event.
func (p *parser) head() (e Event) {
	p.must(`{"specversion":"`)
	e.SpecVersion = p.text()
	p.must(`,"id":"`)
	e.ID = p.text()
	p.must(`,"source":"`)
	e.Source = p.text()
	p.must(`,"type":"`)
	e.Type = Type(p.text())
	if p.may(`,"time":"`) {
		at := p.text()
		p.failed = p.failed || e.Time.UnmarshalText([]byte(at)) != nil
	}
	setText(p, `,"agent":"`, &e.Agent)
	setText(p, `,"session":"`, &e.Session)
	setText(p, `,"turn":"`, &e.Turn)
	setText(p, `,"cause":"`, &e.Cause)
	p.must(`,"data":`)
	return e
}

// object reads an object of valid JSON, up to its closing brace.
func (p *parser) object() []byte {
	depth, quoted := 0, false
	for i := 0; i < len(p.rest); i++ {
		switch c := p.rest[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{':
			depth++
		case c == '}':
			depth--
		}
		if depth == 0 {
			if p.rest[i] != '}' {
				break // not an object
			}
			data := p.rest[: i+1 : i+1]
			p.rest = p.rest[i+1:]
			return data
		}
	}
	p.failed = true
	return nil
}

func (p *parser) may(prefix string) bool {
	if len(p.rest) < len(prefix) || string(p.rest[:len(prefix)]) != prefix {
		return false
	}
	p.rest = p.rest[len(prefix):]
	return true
}

func (p *parser) must(prefix string) {
	if !p.may(prefix) {
		p.failed = true
	}
}

// text reads a string of plain ASCII up to its closing quote.
func (p *parser) text() string {
	for i, c := range p.rest {
		switch {
		case c == '"':
			s := string(p.rest[:i])
			p.rest = p.rest[i+1:]
			return s
		case c < ' ' || c == '\\' || c > '~':
			p.failed = true
			return ""
		}
	}
	p.failed = true
	return ""
}

func setText[T ~string](p *parser, prefix string, to *T) {
	if p.may(prefix) {
		*to = T(p.text())
	}
}
