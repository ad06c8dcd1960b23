package schedules

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/journal"
)

// record is a schedule in the bucket.
type record struct {
	subject.Ref
	Name     string       `json:"name"`
	Text     string       `json:"text"`
	When     coreapi.When `json:"when"`
	Made     string       `json:"made"` // a nonce: a schedule that replaces another has a new one
	Created  time.Time    `json:"created"`
	Turn     string       `json:"turn,omitempty"`
	ReplyTo  string       `json:"reply_to,omitempty"` // of its inputs
	Last     time.Time    `json:"last"`               // the last occurrence, at first the creation
	Occurred int          `json:"occurred,omitempty"`
	// Input is, with when_idle, the sequence of the last input.
	Input uint64 `json:"input,omitempty"`
	// Pending is, with when_idle, the id of an input that is being stored, or was.
	Pending string `json:"pending,omitempty"`
	Key     string `json:"key,omitempty"`     // of a webhook: what its callers show
	Seen    seen   `json:"seen,omitzero"`     // by a watch
	Trouble string `json:"trouble,omitempty"` // why the page of a watch could not be read the last time

	revision uint64
	plan     plan
}

// key returns the key of a schedule: ids contain no dot.
func key(ref subject.Ref, name string) string {
	return string(ref.Agent) + "." + string(ref.Session) + "." + name
}

func (r *record) key() string { return key(r.Ref, r.Name) }

// agentOf returns the agent whose schedule has the key.
func agentOf(key string) subject.Agent {
	agent, _, _ := strings.Cut(key, ".")
	return subject.Agent(agent)
}

func decode(e journal.Entry) (*record, error) {
	r := &record{revision: e.Revision}
	if err := json.Unmarshal(e.Value, r); err != nil {
		return nil, fmt.Errorf("schedule %s: %w", e.Key, err)
	}
	if r.key() != e.Key {
		return nil, fmt.Errorf("schedule %s: it is stored as %s", r.key(), e.Key)
	}
	var err error
	if r.plan, err = read(r.When); err != nil {
		return nil, fmt.Errorf("schedule %s: %w", e.Key, err)
	}
	return r, nil
}

// source is the source of the schedule's inputs, and the origin of those that bring nothing from outside.
func (r *record) source() string { return event.OriginSchedule + ":" + r.Name }

// origin is where the data of the inputs comes from.
func (r *record) origin() event.Origin {
	switch {
	case r.plan.hook:
		return event.Origin("webhook:" + r.Name)
	case r.watches():
		return "web"
	}
	return event.Origin(r.source())
}

// watches reports whether it reads a page.
func (r *record) watches() bool { return r.When.Watch != nil }

// input returns the input with the id, and with the data from outside, if any.
func (r *record) input(id, data string) event.Input {
	in := event.Input{Text: r.Text, ID: id, Source: r.source(), Origin: r.origin(), ReplyTo: r.ReplyTo}
	if data != "" {
		in.Text += "\n\n" + decide.AsData(data, in.Origin)
	}
	return in
}

// left returns how often it still occurs; 0: there is no limit.
func (r *record) left() int {
	if r.When.Count == 0 {
		return 0
	}
	return max(1, r.When.Count-r.Occurred)
}

// over reports whether it will not occur again.
func (r *record) over() bool {
	switch {
	case r.When.Count > 0 && r.Occurred >= r.When.Count:
		return true
	case r.plan.idle > 0, r.plan.hook:
		return !r.plan.until.IsZero() && !r.Last.Before(r.plan.until)
	}
	return r.plan.next(r.Last).IsZero()
}

// info returns the schedule for people.
func (r *record) info(now time.Time) coreapi.Schedule {
	s := coreapi.Schedule{
		Ref: r.Ref, Name: r.Name, Text: r.Text, When: r.When, Created: r.Created, Turn: r.Turn, Occurred: r.Occurred,
		Next: r.plan.upcoming(r.Last, now, r.left()),
	}
	if r.Occurred > 0 {
		s.Last = r.Last
	}
	if r.Trouble != "" {
		s.Problem = "the page was not read: " + r.Trouble
	}
	if r.plan.hook {
		s.Path, s.Key = coreapi.WebhookPath+r.Made, r.Key
	}
	return s
}
