package schedules

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"
	"unicode/utf8"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/journal"
)

// The limits of an agent.
const (
	maxOfSession = 20
	maxOfAgent   = 200
	maxText      = 4 << 10 // bytes
)

// request is what an agent wants to create.
type request struct {
	Name string `json:"name"`
	Text string `json:"text"`
	coreapi.When
	Replace bool `json:"replace"`
}

// errInvalid is wrapped by errors about a request; they name the field and the fix.
var errInvalid = errors.New("invalid schedule")

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errInvalid, fmt.Sprintf(format, args...))
}

// create stores a schedule of a session. It reports false if exactly that was stored before.
func (s *Schedules) create(ctx context.Context, ref subject.Ref, turn string, q request) (*record, bool, error) {
	switch {
	case !subject.Valid(q.Name):
		return nil, false, invalid("name is %q, want 1 to %d characters of A-Z a-z 0-9 _ -", q.Name, subject.MaxIDLen)
	case q.Text == "" || len(q.Text) > maxText || !utf8.ValidString(q.Text):
		return nil, false, invalid("text has %d bytes, want 1 to %d of UTF-8", len(q.Text), maxText)
	}
	p, err := read(q.When)
	if err != nil {
		return nil, false, invalid("%v", err)
	}
	if err := s.await(ctx); err != nil {
		return nil, false, err
	}
	var first seen
	if q.Watch != nil {
		if same, _, err := s.admit(ref, q, p); err != nil || same != nil {
			return same, false, err
		}
		if first, _, err = s.look(ctx, &record{Ref: ref, Name: q.Name, When: p.when, Turn: turn}); err != nil {
			return nil, false, fmt.Errorf("nothing was scheduled, because the page cannot be watched: %w", err)
		}
	}
	for {
		r, created, err := s.tryCreate(ctx, ref, turn, q, p, first)
		if !errors.Is(err, bus.ErrFenceLost) {
			return r, created, err
		}
		select { // until the watch has delivered what has changed
		case <-ctx.Done():
			return nil, false, errors.New("other schedules of the agent are changing; try again")
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// tryCreate stores the schedule, unless another one of the agent has changed since it was looked at.
func (s *Schedules) tryCreate(
	ctx context.Context, ref subject.Ref, turn string, q request, p plan, first seen,
) (*record, bool, error) {
	same, changed, err := s.admit(ref, q, p)
	if err != nil || same != nil {
		return same, false, err
	}
	now := s.cfg.Now().UTC()
	if err := p.check(now); err != nil {
		return nil, false, invalid("%v", err)
	}
	r := &record{
		Ref: ref, Name: q.Name, Text: q.Text, When: p.when, Made: nonce(), Created: now, Turn: turn, Last: now, plan: p,
		Seen: first,
	}
	if p.hook {
		r.Key = newKey()
	}
	if r.ReplyTo, err = s.replyTo(ctx, ref, turn); err != nil {
		return nil, false, err
	}
	if err := s.put(ctx, r, journal.Fence{Filter: string(ref.Agent) + ".>", Revision: changed}); err != nil {
		return nil, false, err
	}
	s.cfg.Log.Info("schedule created", "session", ref, "name", r.Name)
	if err := s.lay(ctx, r); err != nil {
		s.cfg.Log.Info("the clock of a schedule is not set yet; it will be set soon", "session", ref, "name", r.Name, "error", err)
	}
	s.kick()
	return r, true, nil
}

// admit returns the schedule if exactly that exists, and the last change of the agent's schedules. The
// error is about another one of the same name, or about too many.
func (s *Schedules) admit(ref subject.Ref, q request, p plan) (same *record, changed uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed = s.changed[ref.Agent]
	if old := s.known[key(ref, q.Name)]; old != nil {
		switch {
		case old.Text == q.Text && reflect.DeepEqual(old.When, p.when):
			return old, changed, nil
		case !q.Replace:
			return nil, 0, invalid("name: there is another schedule %q; set replace to true to replace it, or choose another name", q.Name)
		}
		return nil, changed, nil
	}
	ofSession, ofAgent := 0, 0
	for _, r := range s.known {
		if r.Agent == ref.Agent {
			ofAgent++
			if r.Session == ref.Session {
				ofSession++
			}
		}
	}
	switch {
	case ofSession >= maxOfSession:
		return nil, 0, invalid("the session has %d schedules, which is the limit; delete one first", ofSession)
	case ofAgent >= maxOfAgent:
		return nil, 0, invalid("agent %s has %d schedules, which is the limit; delete some first", ref.Agent, ofAgent)
	}
	return nil, changed, nil
}

// replyTo returns where answers to the schedule's inputs go: where those of the turn go that creates
// it, preceded by the listener that delivers there.
func (s *Schedules) replyTo(ctx context.Context, ref subject.Ref, turn string) (string, error) {
	m, err := s.cfg.Bus.Message(ctx, event.SequenceOf(turn))
	if errors.Is(err, bus.ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	var in event.Input
	cause, err := subject.ParseCause(m.Subject)
	if err != nil || cause.Ref != ref || cause.Kind != subject.Input || event.DecodeCause(m.Data, &in) != nil || in.ReplyTo == "" {
		return "", nil //nolint:nilerr // it is no input that says where its answer goes
	}
	to := in.ReplyTo
	if cause.Writer != subject.ScheduleWriter {
		to = string(cause.Writer) + ":" + to
	}
	if len(to) > event.MaxReplyTo {
		s.cfg.Log.Warn("the address of a conversation is too long: answers of the schedule are not delivered there", "session", ref)
		return "", nil
	}
	return to, nil
}

// remove deletes a schedule, and reports whether there was one.
func (s *Schedules) remove(ctx context.Context, ref subject.Ref, name string) (bool, error) {
	for {
		e, err := s.bucket.Get(ctx, key(ref, name))
		if errors.Is(err, bus.ErrNotFound) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		if err := s.drop(ctx, e.Key, e.Revision); !errors.Is(err, bus.ErrFenceLost) {
			return err == nil, err
		}
	}
}

// Forget deletes all schedules of a session.
func (s *Schedules) Forget(ctx context.Context, ref subject.Ref) error {
	if err := s.await(ctx); err != nil {
		return err
	}
	for _, r := range s.list(func(r *record) bool { return r.Ref == ref }) {
		if _, err := s.remove(ctx, ref, r.Name); err != nil {
			return fmt.Errorf("deleting the schedule %s: %w", r.Name, err)
		}
	}
	return nil
}

// drop deletes the revision of a schedule.
func (s *Schedules) drop(ctx context.Context, key string, revision uint64) error {
	rev, err := s.bucket.Delete(ctx, key, journal.Fence{Revision: revision})
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.adopt(journal.Entry{Key: key, Revision: rev, Time: s.cfg.Now(), Deleted: true})
	c := s.clock
	s.mu.Unlock()
	if c != nil {
		if err := c.Remove(ctx, key); err != nil { // what is due without a schedule is dropped
			s.cfg.Log.Debug("removing the clock of a schedule", "schedule", key, "error", err)
		}
	}
	return nil
}

// put stores a schedule if the fence holds.
func (s *Schedules) put(ctx context.Context, r *record, f journal.Fence) error {
	value, err := json.Marshal(r)
	if err != nil {
		return err
	}
	rev, err := s.bucket.Put(ctx, r.key(), value, f)
	if errors.Is(err, bus.ErrAmbiguous) { // the acknowledgement may be lost
		if now, e := s.bucket.Get(ctx, r.key()); e == nil && string(now.Value) == string(value) {
			rev, err = now.Revision, nil
		}
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.adopt(journal.Entry{Key: r.key(), Revision: rev, Time: s.cfg.Now(), Value: value})
	r.revision = rev
	return nil
}

// save stores a schedule that nobody has changed since it was read.
func (s *Schedules) save(ctx context.Context, r *record) error {
	return s.put(ctx, r, journal.Fence{Revision: r.revision})
}

func nonce() string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails, see crypto/rand
	return hex.EncodeToString(b[:])
}
