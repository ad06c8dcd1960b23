package cron_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/listener/contract"
	"skandha.dev/services/listener/cron"
	"skandha.dev/services/listener/emitter"
	"skandha.dev/services/test/listenertest"
	"skandha.dev/services/test/natstest"
)

func TestConformance(t *testing.T) {
	listenertest.Run(t, func(t *testing.T, b *journal.Journal) listenertest.Subject {
		c := newClock(t, "2024-05-01T07:00:00Z")
		l, err := cron.New("clock", cron.Config{
			Common:  cron.Common{Session: "conformance", CatchUp: cron.CatchUpAll},
			Entries: map[string]cron.Entry{"tick": {Schedule: "0 8 * * *", Text: "tick"}},
		}, cron.Deps{Bus: b, Logger: natstest.Logger(t), Now: c.Now})
		if err != nil {
			t.Fatal(err)
		}
		return listenertest.Subject{
			Listener: l, Text: "tick", Keeps: true,
			// The world is the clock: a day goes by, with one occurrence.
			Say: func(ctx context.Context, _, _ string) error {
				natstest.Eventually(t, "the schedule is laid down", func() bool { return l.Ready() == nil || ctx.Err() != nil })
				next := c.Now().Add(24 * time.Hour)
				c.now.Store(&next)
				return nil
			},
		}
	})
}

// hands are those of a clock that the test sets.
type hands struct{ now atomic.Pointer[time.Time] }

func newClock(t *testing.T, s string) *hands {
	t.Helper()
	c := &hands{}
	c.set(t, s)
	return c
}

func (c *hands) set(t *testing.T, s string) {
	t.Helper()
	v, err := time.Parse(time.RFC3339, s)
	if err != nil {
		t.Fatal(err)
	}
	c.now.Store(&v)
}

func (c *hands) Now() time.Time { return *c.now.Load() }

type replica struct {
	*cron.Listener
	stats *cron.Stats
	gate  *listenertest.Gate
}

func start(t *testing.T, b *journal.Journal, cfg cron.Config, c *hands) *replica {
	t.Helper()
	gate := listenertest.NewGate(emitter.New(b.Bus, "clock", &emitter.Stats{}, natstest.Logger(t)))
	return startWith(t, b, cfg, c, gate, gate)
}

func startWith(
	t *testing.T, b *journal.Journal, cfg cron.Config, c *hands, e contract.Emitter, gate *listenertest.Gate,
) *replica {
	t.Helper()
	if cfg.Session == "" {
		cfg.Session = "s"
	}
	r := &replica{stats: &cron.Stats{}, gate: gate}
	deps := cron.Deps{Bus: b, Logger: natstest.Logger(t), Stats: r.stats}
	if c != nil {
		deps.Now = c.Now
	}
	var err error
	if r.Listener, err = cron.New("clock", cfg, deps); err != nil {
		t.Fatal(err)
	}
	if err := r.OnStart(natstest.Context(t), e); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = r.OnStop(ctx)
	})
	r.awaitReady(t)
	return r
}

func (r *replica) awaitReady(t *testing.T) {
	t.Helper()
	natstest.Eventually(t, "the schedules are laid down", func() bool { return r.Ready() == nil })
}

func (r *replica) stop(t *testing.T) {
	t.Helper()
	if err := r.OnStop(natstest.Context(t)); err != nil {
		t.Fatalf("OnStop: %v", err)
	}
}

func entry(schedule string) map[string]cron.Entry {
	return map[string]cron.Entry{"job": {Schedule: schedule, Text: "do it"}}
}

var session = subject.Ref{Agent: "main", Session: "s"}

// occurred are the times of the inputs in the log, which are in their ids.
func occurred(t *testing.T, b *journal.Journal) (out []string) {
	t.Helper()
	for _, in := range listenertest.Log(t, b, session) {
		out = append(out, strings.TrimPrefix(in.ID, "job/"))
	}
	return out
}

func await(t *testing.T, b *journal.Journal, want ...string) {
	t.Helper()
	natstest.Eventually(t, fmt.Sprint("occurrences ", want), func() bool { return len(occurred(t, b)) >= len(want) })
	if got := occurred(t, b); !slices.Equal(got, want) {
		t.Fatalf("the log holds %v, want %v", got, want)
	}
}

// steady fails unless the occurrences are those of a schedule of every second, each
// once.
func steady(t *testing.T, got []string) {
	t.Helper()
	for i := range got {
		at, err := time.Parse(time.RFC3339, got[i])
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			continue
		}
		before, _ := time.Parse(time.RFC3339, got[i-1])
		if at.Sub(before) != time.Second {
			t.Fatalf("%s follows %s: %v", got[i], got[i-1], got)
		}
	}
}

func TestReplicasOccurOncePerSecondOnARealServer(t *testing.T) {
	srv := natstest.Start(t)
	b := natstest.Connect(t, srv)
	for range 3 {
		start(t, natstest.Connect(t, srv), cron.Config{Entries: entry("* * * * * *")}, nil)
	}
	natstest.Eventually(t, "five occurrences", func() bool { return len(occurred(t, b)) >= 5 })
	steady(t, occurred(t, b))
	for _, in := range listenertest.Log(t, b, session) {
		if in.Text != "do it" || in.Source != "cron:job" || in.Writer != "clock" {
			t.Errorf("the log holds %+v", in)
		}
	}
}

// The positions outlive the listener and the bus: what falls due while they are away
// occurs afterwards, each once.
func TestPositionsSurviveEveryRestart(t *testing.T) {
	p := natstest.StartProcess(t, "", 0)
	b := natstest.ConnectURL(t, p.URL())
	cfg := cron.Config{Common: cron.Common{CatchUp: cron.CatchUpAll}, Entries: entry("* * * * * *")}
	first := start(t, b, cfg, nil)
	natstest.Eventually(t, "two occurrences", func() bool { return len(occurred(t, b)) >= 2 })
	p.Kill()
	p.Restart()
	n := len(first.gate.Took())
	natstest.Eventually(t, "two more after the bus was killed", func() bool { return len(first.gate.Took()) >= n+2 })
	first.stop(t)
	p.Stop()
	p.Restart()
	second := start(t, natstest.ConnectURL(t, p.URL()), cfg, nil)
	natstest.Eventually(t, "two more after both were away", func() bool { return len(second.gate.Took()) >= 2 })
	second.stop(t)
	natstest.Eventually(t, "the connection", b.Connected)
	steady(t, occurred(t, b))
}

func TestSummerTimeOnARealServer(t *testing.T) {
	b := natstest.Connect(t, natstest.Start(t))
	c := newClock(t, "2024-03-29T12:00:00Z")
	start(t, b, cron.Config{Common: cron.Common{Zone: "Europe/Berlin"}, Entries: entry("30 2 * * *")}, c)
	c.set(t, "2024-03-30T01:30:00Z")
	await(t, b, "2024-03-30T01:30:00Z")
	c.set(t, "2024-03-31T01:00:02Z") // the clock has just been put forward over 02:30
	await(t, b, "2024-03-30T01:30:00Z", "2024-03-31T01:00:00Z")
	c.set(t, "2024-04-01T00:30:00Z")
	await(t, b, "2024-03-30T01:30:00Z", "2024-03-31T01:00:00Z", "2024-04-01T00:30:00Z")
}

func TestMissedOccurrencesAreCaughtUpAsConfigured(t *testing.T) {
	for catchUp, want := range map[cron.CatchUp][]string{
		cron.CatchUpNone: nil,
		cron.CatchUpLast: {"2024-05-05T08:00:00Z"},
		cron.CatchUpAll:  {"2024-05-03T08:00:00Z", "2024-05-04T08:00:00Z", "2024-05-05T08:00:00Z"},
	} {
		t.Run(string(catchUp), func(t *testing.T) {
			b := natstest.Connect(t, natstest.Start(t))
			c := newClock(t, "2024-05-01T07:00:00Z")
			cfg := cron.Config{Common: cron.Common{CatchUp: catchUp, CatchUpMax: 3}, Entries: entry("0 8 * * *")}
			first := start(t, b, cfg, c)
			c.set(t, "2024-05-01T08:00:00Z")
			await(t, b, "2024-05-01T08:00:00Z")
			first.stop(t)
			c.set(t, "2024-05-05T12:00:00Z") // four were missed
			second := start(t, b, cfg, c)
			natstest.Eventually(t, "what was missed is decided",
				func() bool { return second.stats.Occurred.Load()+second.stats.Missed.Load() == 4 })
			c.set(t, "2024-05-06T08:00:00Z")
			await(t, b, append(append([]string{"2024-05-01T08:00:00Z"}, want...), "2024-05-06T08:00:00Z")...)
		})
	}
}

func TestANewEntryBeginsNow(t *testing.T) {
	b := natstest.Connect(t, natstest.Start(t))
	c := newClock(t, "2024-05-05T12:00:00Z")
	start(t, b, cron.Config{Common: cron.Common{CatchUp: cron.CatchUpAll}, Entries: entry("0 8 * * *")}, c)
	c.set(t, "2024-05-06T08:00:00Z")
	await(t, b, "2024-05-06T08:00:00Z")
}

func TestAChangedEntryBeginsAnewAndARemovedOneIsForgotten(t *testing.T) {
	b := natstest.Connect(t, natstest.Start(t))
	c := newClock(t, "2024-05-01T07:00:00Z")
	entries := entry("0 8 * * *")
	entries["other"] = cron.Entry{Schedule: "0 9 * * *", Text: "never mind"}
	start(t, b, cron.Config{Entries: entries}, c).stop(t)
	left := func() bool {
		t.Helper()
		_, err := b.Bucket(journal.BucketCron).Get(natstest.Context(t), "clock.other")
		if err != nil && !errors.Is(err, bus.ErrNotFound) {
			t.Fatal(err)
		}
		return err == nil
	}
	if !left() {
		t.Fatal("the entry was never there")
	}
	// What its old schedule would have fired meanwhile is not caught up.
	c.set(t, "2024-05-02T10:00:00Z")
	start(t, b, cron.Config{Common: cron.Common{CatchUp: cron.CatchUpAll}, Entries: entry("0 11 * * *")}, c)
	if left() {
		t.Error("the position of the removed entry is left")
	}
	c.set(t, "2024-05-02T11:00:00Z")
	await(t, b, "2024-05-02T11:00:00Z")
}

// An emitter whose inputs are stored, and which then says that they are not known
// to be, as when the acknowledgement is lost or the listener dies behind it.
type forgetful struct {
	contract.Emitter
	mu   sync.Mutex
	seen map[string]int
}

func (f *forgetful) EmitInput(ctx context.Context, in contract.Input) (contract.Receipt, error) {
	r, err := f.Emitter.EmitInput(ctx, in)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.seen[in.ID]++; err == nil && f.seen[in.ID] == 1 {
		return contract.Receipt{}, contract.ErrUnavailable
	}
	return r, err
}

func TestAnOccurrenceThatIsEmittedAgainIsTheSameInput(t *testing.T) {
	b := natstest.Connect(t, natstest.Start(t))
	e := &forgetful{Emitter: emitter.New(b.Bus, "clock", &emitter.Stats{}, natstest.Logger(t)), seen: map[string]int{}}
	r := startWith(t, b, cron.Config{Entries: entry("* * * * * *")}, nil, e, nil)
	natstest.Eventually(t, "three occurrences", func() bool { return r.stats.Occurred.Load() >= 3 })
	r.stop(t)
	steady(t, occurred(t, b))
}

// A replica that ends while it holds an occurrence hands it to another.
func TestAnOccurrenceIsTakenOver(t *testing.T) {
	srv := natstest.Start(t)
	b := natstest.Connect(t, srv)
	c := newClock(t, "2024-05-01T07:00:00Z")
	cfg := cron.Config{Entries: entry("0 8 * * *")}
	first := start(t, b, cfg, c)
	first.gate.Hold()
	c.set(t, "2024-05-01T08:00:00Z")
	natstest.Eventually(t, "the first holds it", func() bool { return len(first.gate.Seen()) == 1 })
	start(t, natstest.Connect(t, srv), cfg, c)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := first.OnStop(ctx); !errors.Is(err, contract.ErrNotTaken) {
		t.Fatalf("OnStop: %v", err)
	}
	await(t, b, "2024-05-01T08:00:00Z")
}

// An entry whose position was lost begins anew, once core has made the bucket again.
func TestALostPositionBeginsAnew(t *testing.T) {
	b := natstest.Connect(t, natstest.Start(t))
	c := newClock(t, "2024-05-01T07:00:00Z")
	cfg := cron.Config{Entries: entry("0 8 * * *")}
	first := start(t, b, cfg, c)
	c.set(t, "2024-05-01T08:00:00Z")
	await(t, b, "2024-05-01T08:00:00Z")
	if err := b.JetStream().DeleteKeyValue(natstest.Context(t), journal.BucketCron); err != nil {
		t.Fatal(err)
	}
	c.set(t, "2024-05-02T08:00:00Z")
	natstest.Eventually(t, "the listener to say what is missing", func() bool { return first.Ready() != nil })
	natstest.EnsureStreams(t, b)
	await(t, b, "2024-05-01T08:00:00Z", "2024-05-02T08:00:00Z")
}

func TestConfigurationsThatAreRefused(t *testing.T) {
	good := cron.Config{Common: cron.Common{Session: "s"}, Entries: entry("@daily")}
	b := natstest.Connect(t, natstest.Start(t))
	for want, change := range map[string]func(*cron.Config, *cron.Entry){
		"entries.job.session":       func(c *cron.Config, _ *cron.Entry) { c.Session = "" },
		"entries.job.agent":         func(_ *cron.Config, e *cron.Entry) { e.Agent = "a b" },
		"entries.job.schedule":      func(_ *cron.Config, e *cron.Entry) { e.Schedule = "now" },
		"entries.job.zone":          func(c *cron.Config, _ *cron.Entry) { c.Zone = "Nowhere/At_All" },
		"entries.job.text":          func(_ *cron.Config, e *cron.Entry) { e.Text = "" },
		"entries.job.text or mode":  func(_ *cron.Config, e *cron.Entry) { e.Mode = "later" },
		"entries.job.catch_up":      func(_ *cron.Config, e *cron.Entry) { e.CatchUp = "some" },
		"catch_up is":               func(c *cron.Config, _ *cron.Entry) { c.CatchUp = "some" },
		"catch_up_max is 1001":      func(c *cron.Config, _ *cron.Entry) { c.CatchUpMax = cron.MaxCatchUp + 1 },
		"late is 1ms":               func(c *cron.Config, _ *cron.Entry) { c.Late = time.Millisecond },
		"entries.job.late is 1ms":   func(_ *cron.Config, e *cron.Entry) { e.Late = time.Millisecond },
		"entries.two words.name":    nil,
		"entries.job.schedule: set": func(_ *cron.Config, e *cron.Entry) { e.Schedule = "TZ=UTC @daily" },
	} {
		c, e := good, good.Entries["job"]
		name := "two words"
		if change != nil {
			change(&c, &e)
			name = "job"
		}
		c.Entries = map[string]cron.Entry{name: e}
		if _, err := cron.New("clock", c, cron.Deps{Bus: b}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v; want %q", c, err, want)
		}
	}
	for want, c := range map[string]cron.Common{ // though nothing occurs yet
		`catch_up is "some"`:        {Session: "s", CatchUp: "some"},
		`zone: "Nowhere/At_All" is`: {Session: "s", Zone: "Nowhere/At_All"},
	} {
		if err := (cron.Config{Common: c}).Validate(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("without entries %+v: %v; want %q", c, err, want)
		}
	}
}
