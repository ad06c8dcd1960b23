package mapping

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/bounds"
	"skandha.dev/services/internal/jsondoc"
	"skandha.dev/services/listener/contract"
)

// Reasons for which a reading is dropped, beside [ErrUnreadable].
var (
	// ErrLimited: there was an input less than every ago.
	ErrLimited = errors.New("above the rate limit")
	// ErrNames: there are max_names other names.
	ErrNames = errors.New("too many names")
	// ErrTaken: it was taken before.
	ErrTaken = errors.New("taken before")
)

// Mapper applies one rule. It is not safe for concurrent use.
type Mapper struct {
	rule    string
	cfg     Config
	text    *jsondoc.Template
	source  Source
	states  map[string]*state
	changed map[string]struct{}
}

// Source names where readings come from.
type Source struct {
	Kind     string // mqtt or sensor
	Listener subject.Writer
	ByName   bool // the origin of an input is the reading's name, not the listener
}

// New returns a mapper. The rule's name is the beginning of the ids of its inputs.
func New(rule string, cfg Config, source Source) (*Mapper, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = bounds.Filled(cfg)
	text, err := jsondoc.ParseTemplate("text_template", cfg.TextTemplate)
	if err != nil {
		return nil, err
	}
	return &Mapper{
		rule: rule, cfg: cfg, text: text, source: source, states: map[string]*state{}, changed: map[string]struct{}{},
	}, nil
}

// Take takes a reading and returns the inputs that it causes: usually none or one; a second
// one if a time had passed before the reading that nobody had asked [Mapper.Due] for. The
// error says why a reading was dropped.
func (m *Mapper) Take(r Reading) ([]contract.Input, error) {
	s := m.states[r.Name]
	switch {
	case s == nil && len(m.states) >= m.cfg.MaxNames:
		return nil, ErrNames
	case s == nil:
		s = &state{Name: r.Name}
	case r.Again && r.ID != "" && slices.Contains(s.Seen, r.ID):
		return nil, ErrTaken
	}
	v, err := m.cfg.read(r)
	if err != nil {
		return nil, err
	}
	if r.Retained && s.Last != nil && *s.Last == kept(v.text) {
		return nil, ErrTaken
	}
	m.states[r.Name] = s
	out, before := m.due(s, r.Time)
	in, err := m.judge(s, r, v)
	if in != nil {
		out = append(out, *in)
	}
	return out, errors.Join(before, err)
}

// judge applies the rule to a reading.
func (m *Mapper) judge(s *state, r Reading, v value) (*contract.Input, error) {
	switch {
	case m.cfg.Window > 0:
		if s.Window == nil {
			s.Window = &window{Since: r.Time}
		}
		s.Window.add(v.number)
		s.see(r.ID)
		m.change(s)
		return nil, nil //nolint:nilnil // no input yet
	case m.cfg.crosses():
		if !m.crossing(s, v.number) {
			return nil, nil //nolint:nilnil // no input, and nothing is wrong
		}
	case m.cfg.OnChange && s.Last != nil && *s.Last == kept(v.text):
		m.calm(s)
		return nil, nil //nolint:nilnil // the same
	}
	if m.cfg.Debounce > 0 {
		m.hold(s, r, v)
		return nil, nil //nolint:nilnil // not before it has held
	}
	return m.fire(s, r, v)
}

// crossing reports whether the number is beyond a threshold for which there was no input yet.
func (m *Mapper) crossing(s *state, n float64) bool {
	if m.cfg.crossed(n) != "" {
		return !s.Fired
	}
	m.calm(s)
	if s.Fired && m.cfg.recovered(n) {
		s.Fired = false
		m.change(s)
	}
	return false
}

// calm forgets a value that did not hold.
func (m *Mapper) calm(s *state) {
	if s.Pending != nil {
		s.Pending, s.limited = nil, false
		m.change(s)
	}
}

// hold begins to wait until the value has held, unless it waits already.
func (m *Mapper) hold(s *state, r Reading, v value) {
	if s.Pending != nil {
		was, err := m.cfg.read(Reading{Data: s.Pending.Data})
		if m.cfg.crosses() || err == nil && was.text == v.text {
			return
		}
	}
	s.Pending, s.limited = &pending{Since: r.Time, Data: r.Data, ID: r.ID}, false
	s.see(r.ID)
	m.change(s)
}

// fire makes the input of a reading, unless there was one less than every ago.
func (m *Mapper) fire(s *state, r Reading, v value) (*contract.Input, error) {
	if since := r.Time.Sub(s.At); m.cfg.Every > 0 && !s.At.IsZero() && since >= 0 && since < m.cfg.Every {
		return nil, ErrLimited
	}
	in, err := m.input(s, r.Name, m.facts(s, r, v), v)
	if err != nil {
		return nil, err
	}
	s.Inputs++
	in.ID = m.inputID(s, cause(r.ID, r.Time))
	s.Fired, s.At, s.Pending = m.cfg.crosses(), r.Time, nil
	s.remember(v)
	s.see(r.ID)
	m.change(s)
	return in, nil
}

func (m *Mapper) change(s *state) { m.changed[s.Name] = struct{}{} }

// Due returns the inputs for which the time has come.
func (m *Mapper) Due(now time.Time) (out []contract.Input, err error) {
	if !m.waits() {
		return nil, nil
	}
	for _, name := range slices.Sorted(maps.Keys(m.states)) {
		in, e := m.due(m.states[name], now)
		out, err = append(out, in...), errors.Join(err, e)
	}
	return out, err
}

// Next returns when [Mapper.Due] has something to do next; zero: not before another reading.
func (m *Mapper) Next() (next time.Time) {
	if !m.waits() {
		return next
	}
	for _, s := range m.states {
		if at := m.next(s); !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next
}

// waits reports whether the rule makes inputs when a time has passed.
func (m *Mapper) waits() bool { return m.cfg.Window > 0 || m.cfg.Debounce > 0 }

func (m *Mapper) next(s *state) time.Time {
	switch {
	case s.Window != nil:
		return s.Window.Since.Add(m.cfg.Window)
	case s.Pending == nil:
		return time.Time{}
	}
	held := s.Pending.Since.Add(m.cfg.Debounce)
	if free := s.At.Add(m.cfg.Every); !s.At.IsZero() && free.After(held) {
		return free
	}
	return held
}

// due makes the input of a window that has ended, or of a value that has held.
func (m *Mapper) due(s *state, now time.Time) ([]contract.Input, error) {
	at := m.next(s)
	if at.IsZero() {
		return nil, nil
	}
	if now.Before(at) {
		if p := s.Pending; p != nil && !s.limited && !now.Before(p.Since.Add(m.cfg.Debounce)) {
			s.limited = true
			return nil, ErrLimited
		}
		return nil, nil
	}
	var in *contract.Input
	var err error
	if s.Window != nil {
		in, err = m.close(s, at)
	} else {
		in, err = m.held(s, at)
	}
	if in == nil {
		return nil, err
	}
	return []contract.Input{*in}, err
}

// held makes the input of the value that has held until a time.
func (m *Mapper) held(s *state, at time.Time) (*contract.Input, error) {
	r := Reading{Name: s.Name, Data: s.Pending.Data, ID: s.Pending.ID, Time: at}
	if r.ID == "" {
		r.ID = cause("", s.Pending.Since)
	}
	v, err := m.cfg.read(r)
	if err == nil {
		var in *contract.Input
		if in, err = m.fire(s, r, v); err == nil {
			return in, nil
		}
	}
	m.calm(s) // it will not succeed later either
	return nil, err
}

// close ends a window. With a threshold, there is an input only if the mean crosses it.
func (m *Mapper) close(s *state, at time.Time) (*contract.Input, error) {
	w := s.Window
	s.Window = nil
	m.change(s)
	v := value{text: number(w.Mean), number: w.Mean}
	if m.cfg.crosses() && !m.crossing(s, w.Mean) {
		return nil, nil //nolint:nilnil // no input, and nothing is wrong
	}
	facts := m.facts(s, Reading{Name: s.Name, Time: at, Data: []byte(v.text)}, v)
	facts["count"], facts["min"], facts["max"], facts["mean"] = w.Count, number(w.Min), number(w.Max), number(w.Mean)
	facts["first"], facts["last"] = number(w.First), number(w.Last)
	in, err := m.input(s, s.Name, facts, v)
	if err != nil {
		return nil, err
	}
	s.Inputs++
	in.ID = m.inputID(s, cause("", w.Since))
	s.Fired, s.At = m.cfg.crosses(), at
	s.remember(v)
	return in, nil
}

// session returns the session that receives the inputs of a name.
func (m *Mapper) session(name string) (subject.Session, error) {
	if m.cfg.SessionLevel == 0 {
		return subject.Session(m.cfg.Session), nil
	}
	levels := strings.Split(name, "/")
	if len(levels) < m.cfg.SessionLevel {
		return "", fmt.Errorf("%w: the name has %d levels, session_level is %d", ErrUnreadable, len(levels), m.cfg.SessionLevel)
	}
	s, err := subject.Parse[subject.Session](m.cfg.SessionPrefix + subject.Encode(levels[m.cfg.SessionLevel-1]))
	if err != nil {
		return "", fmt.Errorf("%w: session_level: %w", ErrUnreadable, err)
	}
	return s, nil
}
