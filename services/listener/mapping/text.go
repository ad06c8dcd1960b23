package mapping

import (
	"fmt"
	"strings"
	"time"
	"unicode"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/jsondoc"
	"skandha.dev/services/internal/text"
	"skandha.dev/services/listener/contract"
)

// The bounds of a text without template, in bytes; a longer value is cut.
const (
	maxShownName  = 256
	maxShownValue = 16 << 10
)

// facts are what a text_template can use.
func (m *Mapper) facts(s *state, r Reading, v value) map[string]any {
	last := ""
	if s.Last != nil {
		last = *s.Last
	}
	return map[string]any{
		"name": r.Name, "levels": strings.Split(r.Name, "/"), "value": v.text, "data": v.doc, "text": string(r.Data),
		"time": r.Time.UTC().Format(time.RFC3339), "retained": r.Retained, "crossed": m.cfg.crossed(v.number),
		"previous": last, "rule": m.rule,
	}
}

// input makes an input without its id.
func (m *Mapper) input(s *state, name string, facts map[string]any, v value) (*contract.Input, error) {
	session, err := m.session(name)
	if err != nil {
		return nil, err
	}
	in := &contract.Input{
		Agent: subject.Agent(m.cfg.Agent), Session: session, Source: m.source.Kind + ":" + string(m.source.Listener), Mode: m.cfg.Mode,
		Origin: m.source.origin(name),
	}
	switch {
	case m.text != nil:
		if in.Text, err = m.text.Text(facts, event.MaxTextBytes); err != nil {
			return nil, fmt.Errorf("%w: it does not fit text_template: %w", ErrUnreadable, err)
		}
	case m.cfg.TextField != "":
		found, _ := jsondoc.Lookup(v.doc, m.cfg.TextField)
		t, ok := found.(string)
		if !ok {
			return nil, fmt.Errorf("%w: text_field %s is not a string in it", ErrUnreadable, m.cfg.TextField)
		}
		in.Text = t
	default:
		in.Text = m.sentence(s, facts, v)
	}
	if err := in.Check(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	return in, nil
}

// origin says where the text of an input comes from.
func (s Source) origin(name string) event.Origin {
	detail := string(s.Listener)
	if s.ByName {
		detail = shown(name)
	}
	return event.Origin(text.Cut(s.Kind+":"+detail, event.MaxOrigin-len("…")))
}

// sentence is the text of an input without a template.
func (m *Mapper) sentence(s *state, facts map[string]any, v value) string {
	name, val := shown(s.Name), text.Cut(v.text, maxShownValue)
	crossed := ""
	if c := m.cfg.crossed(v.number); m.cfg.crosses() && c != "" {
		crossed = ", " + c
	}
	switch {
	case m.cfg.Window > 0:
		return fmt.Sprintf("%s: %d readings in %s: mean %s%s, min %s, max %s, first %s, last %s",
			name, facts["count"], m.cfg.Window, facts["mean"], crossed, facts["min"], facts["max"], facts["first"], facts["last"])
	case crossed != "":
		return fmt.Sprintf("%s is %s%s", name, val, crossed)
	case m.cfg.OnChange && s.Last != nil:
		return fmt.Sprintf("%s is now %s, was %s", name, val, *s.Last)
	case m.cfg.OnChange:
		return fmt.Sprintf("%s is now %s", name, val)
	case val == "":
		return name + ": (empty)"
	}
	return name + ": " + val
}

// shown is a name as it can be in a text.
func shown(name string) string {
	clean := strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(name, "\ufffd"))
	return text.Cut(clean, maxShownName)
}
