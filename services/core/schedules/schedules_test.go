package schedules

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/internal/clock"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/test/natstest"
)

var session = subject.Ref{Agent: "main", Session: "s1"}

// world has the bus and what cores see of a session.
type world struct {
	t       *testing.T
	connect func() *journal.Journal
	bus     *journal.Journal
	now     atomic.Pointer[time.Time] // of the cores; years behind the server's
	state   atomic.Pointer[decide.State]
	gone    atomic.Bool // the agent is not configured
}

func newWorld(t *testing.T, connect func() *journal.Journal) *world {
	w := &world{t: t, connect: connect, bus: connect()}
	natstest.EnsureStreams(t, w.bus)
	now := at(t, "2024-05-01T07:00:00Z")
	w.now.Store(&now)
	w.state.Store(decide.New(session))
	return w
}

func embedded(t *testing.T) *world {
	srv := natstest.Start(t)
	return newWorld(t, func() *journal.Journal { return natstest.Connect(t, srv) })
}

// core returns one more core, which works if it is started.
func (w *world) core() *Schedules {
	return New(Config{
		Bus: w.connect(), Log: natstest.Logger(w.t), Now: func() time.Time { return *w.now.Load() },
		Known: func(subject.Agent) bool { return !w.gone.Load() },
		State: func(context.Context, subject.Ref) (*decide.State, error) { return w.state.Load(), nil },
	})
}

func (w *world) started() *Schedules {
	s := w.core()
	w.t.Cleanup(s.Start(context.Background()))
	return s
}

// following returns a core that knows what the bucket holds, and makes nothing occur.
func (w *world) following() *Schedules {
	s := w.core()
	watch := s.bucket.Watch(s.take)
	w.t.Cleanup(watch.Stop)
	return s
}

func (w *world) create(s *Schedules, q request) *record {
	w.t.Helper()
	r, _, err := s.create(natstest.Context(w.t), session, "t1", q)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// inputs returns the inputs of the session in the log, by any writer, once the bus can be reached.
func (w *world) inputs() (out []event.Input) {
	w.t.Helper()
	natstest.Eventually(w.t, "the log can be read", func() bool {
		var err error
		out, err = w.read()
		return err == nil
	})
	return out
}

func (w *world) read() (out []event.Input, err error) {
	for m, err := range w.bus.Messages(natstest.Context(w.t), session, 0) {
		if err != nil {
			return nil, err
		}
		var in event.Input
		if c, err := subject.ParseCause(m.Subject); err == nil && c.Kind == subject.Input {
			if err := event.DecodeCause(m.Data, &in); err != nil {
				w.t.Fatal(err)
			}
			out = append(out, in)
		}
	}
	return out, nil
}

func (w *world) texts() (out []string) {
	for _, in := range w.inputs() {
		out = append(out, in.Text)
	}
	slices.Sort(out)
	return out
}

func (w *world) say(text string) {
	w.t.Helper()
	body, err := json.Marshal(event.Input{Text: text})
	if err == nil {
		_, err = w.bus.PublishCause(natstest.Context(w.t), session, subject.Input, "web", "", body)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// The cores' clocks are years behind: what is due in the future for them is due at once, because the
// server's clock decides.
func TestAnOccurrenceIsOneInputOfTheSession(t *testing.T) {
	w := embedded(t)
	s := w.started()
	w.create(s, request{Name: "call", Text: "call Ada", When: coreapi.When{At: "2024-05-01T08:00"}})
	natstest.Eventually(t, "the input is stored", func() bool { return len(w.inputs()) == 1 })
	in := w.inputs()[0]
	if in.Text != "call Ada" || in.Origin != "schedule:call" || in.Source != "schedule:call" || in.From != "" || in.ReplyTo != "" {
		t.Errorf("%+v", in)
	}
	natstest.Eventually(t, "a schedule that is over is in no list", func() bool {
		p, err := s.Query(natstest.Context(t), coreapi.SchedulesQuery{})
		return err == nil && len(p.Schedules) == 0
	})
}

// Several cores take what is due, and one dies after each step. Each occurrence is one input.
func TestOccurrencesAreEmittedOnceWhicheverCoreDies(t *testing.T) {
	w := embedded(t)
	dead := w.following()
	var want []string
	for i := range 15 {
		text := fmt.Sprintf("%02d", i)
		want = append(want, text)
		r := w.create(dead, request{Name: "n" + text, Text: text, When: coreapi.When{At: "2024-05-01T08:00", Zone: "UTC"}})
		if i%3 == 0 { // a core stores the input and dies before it records that
			id := r.Name + "/" + r.Made + "/2024-05-01T08:00:00Z"
			if _, err := dead.emit(natstest.Context(t), r, id, "", *w.now.Load()); err != nil {
				t.Fatal(err)
			}
		}
	}
	all := []*Schedules{w.started(), w.started(), w.started()}
	natstest.Eventually(t, "all schedules have occurred and are over", func() bool {
		return len(w.texts()) >= len(want) && // until then, a core may not have read them yet
			!slices.ContainsFunc(all, func(s *Schedules) bool { return s.Counters()["schedules"] > 0 })
	})
	if got := w.texts(); !slices.Equal(got, want) {
		t.Errorf("inputs are %v, want %v", got, want)
	}
}

// The bus is killed after creation and comes back; the core that created died, too.
func TestSchedulesSurviveTheBus(t *testing.T) {
	p := natstest.StartProcess(t, t.TempDir(), 0)
	w := newWorld(t, func() *journal.Journal { return natstest.ConnectURL(t, p.URL()) })
	dead := w.following()
	w.create(dead, request{Name: "call", Text: "call Ada", When: coreapi.When{At: "2024-05-01T08:00"}})
	w.create(dead, request{Name: "later", Text: "not yet", When: coreapi.When{Every: "1000h"}})
	p.Kill()
	p.Restart()
	s := w.started()
	natstest.Eventually(t, "the schedule occurs", func() bool { return slices.Contains(w.texts(), "call Ada") })
	natstest.Eventually(t, "it is over", func() bool { return s.Counters()["schedules"] == 1 })
	p.Kill()
	p.Restart()
	natstest.Eventually(t, "the other one is known", func() bool {
		page, err := s.Query(natstest.Context(t), coreapi.SchedulesQuery{})
		return err == nil && len(page.Schedules) == 1 && page.Schedules[0].Name == "later"
	})
	n := 0
	for _, text := range w.texts() {
		if text == "call Ada" {
			n++
		}
	}
	if n != 1 {
		t.Errorf("it occurred %d times: %v", n, w.texts())
	}
}

// A schedule whose clock was lost, or never set, is set again.
func TestALostClockIsSetAgain(t *testing.T) {
	w := embedded(t)
	dead := w.following()
	r := w.create(dead, request{Name: "call", Text: "call Ada", When: coreapi.When{At: "2024-05-01T08:00"}})
	if err := w.bus.JetStream().DeleteStream(natstest.Context(t), clock.Stream); err != nil {
		t.Fatal(err)
	}
	w.started()
	natstest.Eventually(t, r.Name+" occurs", func() bool { return slices.Equal(w.texts(), []string{"call Ada"}) })
}

func TestCreatingIsIdempotentByName(t *testing.T) {
	w := embedded(t)
	s := w.following()
	ctx := natstest.Context(t)
	q := request{Name: "weekly", Text: "report", When: coreapi.When{Cron: " 30  8 * * mon ", Zone: "Europe/Berlin"}}
	first := w.create(s, q)
	again, created, err := s.create(ctx, session, "t2", request{
		Name: "weekly", Text: "report", When: coreapi.When{Cron: "30 8 * * mon", Zone: "Europe/Berlin"},
	})
	if err != nil || created || again.Made != first.Made {
		t.Errorf("creating the same again: %+v, %t, %v", again, created, err)
	}
	q.Text = "another report"
	if _, _, err := s.create(ctx, session, "t2", q); !errors.Is(err, errInvalid) || !strings.Contains(err.Error(), "set replace to true") {
		t.Errorf("another content: %v", err)
	}
	q.Replace = true
	if r, created, err := s.create(ctx, session, "t2", q); err != nil || !created || r.Text != "another report" {
		t.Errorf("replacing: %+v, %t, %v", r, created, err)
	}
	if r, created, err := s.create(ctx, session, "t2", q); err != nil || created || r.Text != "another report" {
		t.Errorf("replacing again: %+v, %t, %v", r, created, err)
	}
	other := subject.Ref{Agent: "main", Session: "s2"}
	if _, created, err := s.create(ctx, other, "t2", q); err != nil || !created {
		t.Errorf("the name in another session: %t, %v", created, err)
	}
	if was, err := s.remove(ctx, other, "weekly"); err != nil || !was {
		t.Errorf("removing: %t, %v", was, err)
	}
	if was, err := s.remove(ctx, other, "weekly"); err != nil || was {
		t.Errorf("removing again: %t, %v", was, err)
	}
	if _, created, err := s.create(ctx, other, "t3", q); err != nil || !created {
		t.Errorf("creating after removing: %t, %v", created, err)
	}
}

// Many cores create at the same time: there are never more than the limit.
func TestTheLimitHoldsWithManyCores(t *testing.T) {
	w := embedded(t)
	var created, refused atomic.Int64
	var all sync.WaitGroup
	for core := range 3 {
		s := w.following()
		all.Go(func() {
			for i := range 10 {
				_, _, err := s.create(natstest.Context(t), session, "t1", request{
					Name: fmt.Sprintf("n%d-%d", core, i), Text: "x", When: coreapi.When{Every: "24h"},
				})
				switch {
				case err == nil:
					created.Add(1)
				case strings.Contains(err.Error(), "has 20 schedules, which is the limit"):
					refused.Add(1)
				default:
					t.Errorf("core %d: %v", core, err)
				}
			}
		})
	}
	all.Wait()
	if created.Load() != maxOfSession || refused.Load() != 10 {
		t.Errorf("%d created, %d refused", created.Load(), refused.Load())
	}
}

// The schedules of an agent that is not configured stay and do not occur until it is.
func TestAnAgentThatIsNotConfigured(t *testing.T) {
	w := embedded(t)
	w.gone.Store(true)
	s := w.started()
	r := w.create(s, request{Name: "call", Text: "call Ada", When: coreapi.When{At: "2024-05-01T08:00"}})
	c, err := s.openClock(natstest.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, "it was due", func() bool {
		laid, err := c.Laid(natstest.Context(t), r.key())
		return err == nil && !laid
	})
	p, err := s.Query(natstest.Context(t), coreapi.SchedulesQuery{})
	if err != nil || len(p.Schedules) != 1 || !strings.Contains(p.Schedules[0].Problem, "agent main is not configured") {
		t.Errorf("%+v, %v", p, err)
	}
	if n, agent := s.Orphans(); n != 1 || agent != "main" || len(w.inputs()) != 0 {
		t.Errorf("%d of %s, inputs %v", n, agent, w.texts())
	}
	w.gone.Store(false)
	if err := s.lookThrough(natstest.Context(t)); err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, "it occurs", func() bool { return slices.Equal(w.texts(), []string{"call Ada"}) })
}

// A session that was deleted gets no inputs until it is undeleted, and loses its schedules with its content.
func TestADeletedSession(t *testing.T) {
	w := embedded(t)
	state := decide.New(session)
	state.Deleted = &decide.Deleted{}
	w.state.Store(state)
	s := w.started()
	r := w.create(s, request{Name: "call", Text: "call Ada", When: coreapi.When{At: "2024-05-01T08:00"}})
	_, call := w.hook(s, coreapi.When{})
	c, err := s.openClock(natstest.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, "it was due", func() bool {
		laid, err := c.Laid(natstest.Context(t), r.key())
		return err == nil && !laid
	})
	if _, err := s.Occur(natstest.Context(t), call); !errors.Is(err, bus.ErrNotFound) || len(w.inputs()) != 0 {
		t.Errorf("a webhook of a deleted session: %v, inputs %v", err, w.texts())
	}
	w.state.Store(decide.New(session))
	if err := s.lookThrough(natstest.Context(t)); err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, "it occurs", func() bool { return slices.Equal(w.texts(), []string{"call Ada"}) })
	if _, err := s.Occur(natstest.Context(t), call); err != nil {
		t.Errorf("the webhook of a session that was undeleted: %v", err)
	}
	if err := s.Forget(natstest.Context(t), session); err != nil || len(s.list(func(*record) bool { return true })) != 0 {
		t.Errorf("schedules are left: %v", err)
	}
}

// An agent whose turns take longer than its interval gets no heap of inputs.
func TestAnOccurrenceIsSkippedWhileThePreviousInputWaits(t *testing.T) {
	w := embedded(t)
	s := w.following()
	r := w.create(s, request{Name: "tick", Text: "tick", When: coreapi.When{Every: "1m", Count: 3}})
	now := at(t, "2024-05-01T07:01:30Z")
	if err := s.handleTime(natstest.Context(t), r, now); err != nil {
		t.Fatal(err)
	}
	state := decide.New(session)
	state.Queue = []decide.Pending{{Writer: subject.ScheduleWriter, Source: "schedule:tick", Origin: "schedule:tick"}}
	w.state.Store(state)
	for i := 1; i < 4; i++ {
		if err := s.handleTime(natstest.Context(t), r, now.Add(time.Duration(i)*time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.Counters()["schedules_skipped"]; n != 3 || len(w.inputs()) != 1 {
		t.Errorf("%d skipped, inputs %v", n, w.texts())
	}
	w.state.Store(decide.New(session))
	for i := 4; i < 6; i++ {
		if err := s.handleTime(natstest.Context(t), r, now.Add(time.Duration(i)*time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.bucket.Get(natstest.Context(t), r.key()); !errors.Is(err, bus.ErrNotFound) || len(w.inputs()) != 3 {
		t.Errorf("after three occurrences: %v, inputs %v", err, w.texts())
	}
}

func TestWhenIdle(t *testing.T) {
	w := embedded(t)
	s := w.following()
	ctx := natstest.Context(t)
	w.say("hello")
	now := time.Now().UTC()
	w.now.Store(&now)
	r := w.create(s, request{Name: "wrap", Text: "wrap up", When: coreapi.When{WhenIdle: "10m"}})
	// look handles it as if that much time has passed, and returns what the log holds.
	look := func(after time.Duration) string {
		t.Helper()
		var err error
		if r, err = s.load(ctx, r.key()); err == nil {
			err = s.handleIdle(ctx, r, now.Add(after))
		}
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(w.texts(), ", ")
	}
	if got := look(9 * time.Minute); got != "hello" {
		t.Errorf("before it is idle for long enough: %s", got)
	}
	busy := decide.New(session)
	busy.Turn = &decide.Turn{}
	w.state.Store(busy)
	if got := look(11 * time.Minute); got != "hello" {
		t.Errorf("while a turn is open: %s", got)
	}
	w.state.Store(decide.New(session))
	if got := look(11 * time.Minute); got != "hello, wrap up" {
		t.Errorf("when it is idle: %s", got)
	}
	if got := look(60 * time.Minute); got != "hello, wrap up" {
		t.Errorf("when nobody has written since: %s", got)
	}
	w.say("hello again")
	if got := look(5 * time.Minute); got != "hello, hello again, wrap up" {
		t.Errorf("right after a new input: %s", got)
	}
	if got := look(90 * time.Minute); got != "hello, hello again, wrap up, wrap up" {
		t.Errorf("when it is idle again: %s", got)
	}
}

// A core stores the input of an idle session and dies before it records that.
func TestWhenIdleIsEmittedOnceWhenTheCoreDies(t *testing.T) {
	w := embedded(t)
	s := w.following()
	ctx := natstest.Context(t)
	w.say("hello")
	r := w.create(s, request{Name: "wrap", Text: "wrap up", When: coreapi.When{WhenIdle: "10m", Count: 1}})
	now := time.Now().Add(time.Hour)
	if again, err := s.idleSince(ctx, r, now); err != nil || !again.IsZero() || r.Pending == "" {
		t.Fatalf("%v, %v, %+v", again, err, r)
	}
	if _, err := s.emit(ctx, r, r.Pending, "", now); err != nil {
		t.Fatal(err)
	}
	w.started()
	natstest.Eventually(t, "it is over", func() bool {
		_, err := s.bucket.Get(ctx, r.key())
		return errors.Is(err, bus.ErrNotFound)
	})
	if got := w.texts(); !slices.Equal(got, []string{"hello", "wrap up"}) {
		t.Errorf("inputs are %v", got)
	}
}

// Strangers' messages on the clock's subjects make no input.
func TestWhatIsNoScheduleDoesNotOccur(t *testing.T) {
	w := embedded(t)
	s := w.started()
	r := w.create(s, request{Name: "later", Text: "not yet", When: coreapi.When{Every: "8000h"}})
	w.create(s, request{Name: "call", Text: "call Ada", When: coreapi.When{At: "2024-05-01T08:00"}})
	natstest.Eventually(t, "the clock is there", func() bool { return len(w.inputs()) > 0 })
	for i, body := range []string{`garbage`, `null`, `{"made":"x","at":"2024-05-01T08:00:00Z"}`} {
		subj := "occurred.schedule." + subject.Encode([]string{r.key(), "main.s1.none", "nonsense"}[i])
		if _, err := w.bus.JetStream().Publish(natstest.Context(t), subj, []byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	w.create(s, request{Name: "last", Text: "the last", When: coreapi.When{At: "2024-05-01T08:00"}})
	natstest.Eventually(t, "the last one occurs", func() bool { return slices.Contains(w.texts(), "the last") })
	for _, text := range w.texts() {
		if text != "call Ada" && text != "the last" && text != "not yet" {
			t.Errorf("an input %q", text)
		}
	}
}
