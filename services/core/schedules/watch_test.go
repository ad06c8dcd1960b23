package schedules

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/test/natstest"
)

// What a watch says, page by page.
func TestWhatAWatchSays(t *testing.T) {
	price := func(w coreapi.Watch) coreapi.Watch { w.Field = "/price"; return w }
	for name, c := range map[string]struct {
		watch coreapi.Watch
		pages []string
		want  []string
	}{
		"a change": {
			coreapi.Watch{},
			[]string{"a", "a ", "b", "b", "a"},
			[]string{"", "", `The value was "a". It is now "b".`, "", `The value was "b". It is now "a".`},
		},
		"a field": {
			price(coreapi.Watch{}),
			[]string{`{"price":1,"n":1}`, `{"price":1,"n":2}`, `{"price":{"eur":2}}`, `{"n":1}`},
			[]string{"", "", `The value was "1". It is now "{\"eur\":2}".`, "error: the page has no field /price"},
		},
		"no JSON": {price(coreapi.Watch{}), []string{"<html>"}, []string{"error: field is set, but the page is not JSON"}},
		"above": {
			price(coreapi.Watch{Above: new(30.0)}),
			[]string{`{"price":30}`, `{"price":30.5}`, `{"price":31}`, `{"price":"29"}`, `{"price":40}`},
			[]string{"", "The value is 30.5, which is above 30.", "", "", "The value is 40, which is above 30."},
		},
		"a band": {
			coreapi.Watch{Above: new(30.0), Below: new(-1.5)},
			[]string{"0", "31", "-2", "0", "x"},
			[]string{"", "The value is 31, which is above 30.", "The value is -2, which is below -1.5.", "", `error: the value is "x"`},
		},
		"a long text": {
			coreapi.Watch{},
			[]string{"a", strings.Repeat("b", 2*shownValue), strings.Repeat("c", keptValue), strings.Repeat("d", keptValue+1)},
			[]string{"", "It has changed. It is now:\n" + strings.Repeat("b", shownValue) + "…", "It has changed. It is now:\nccc", "It has changed. It is now:\nddd"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var was seen
			for i, page := range c.pages {
				now, said, err := judge(c.watch, was, page)
				if err != nil {
					said = "error: " + err.Error()
				} else {
					was = now
				}
				if said != c.want[i] && (c.want[i] == "" || !strings.HasPrefix(said, c.want[i])) {
					t.Errorf("page %d: %.100q, want %.100q", i, said, c.want[i])
				}
			}
		})
	}
}

func TestWatchesAreChecked(t *testing.T) {
	for want, w := range map[string]coreapi.When{
		"url: want":               {Every: "1h", Watch: &coreapi.Watch{URL: "ftp://example.com"}},
		"url: it has a password":  {Every: "1h", Watch: &coreapi.Watch{URL: "https://ada:x@example.com"}},
		"every: a watch needs":    {Cron: "@daily", Watch: &coreapi.Watch{URL: "https://example.com"}},
		"field":                   {Every: "1h", Watch: &coreapi.Watch{URL: "https://example.com", Field: "price"}},
		"below, above: want":      {Every: "1h", Watch: &coreapi.Watch{URL: "https://example.com", Above: new(1.0), Below: new(1.0)}},
		"every is 10s, want 1m0s": {Every: "10s", Watch: &coreapi.Watch{URL: "https://example.com"}},
	} {
		if _, err := read(w); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// site is what a watch reads.
type site struct{ page atomic.Pointer[string] }

func (s *site) shows(page string) { s.page.Store(&page) }

func (s *site) read(_ context.Context, _ subject.Ref, _, after, url string) (string, error) {
	if after != "schedule:price" || url != "https://shop.example.com/1" {
		return "", errors.New("it asked for " + url + " after " + after)
	}
	if p := s.page.Load(); p != nil {
		return *p, nil
	}
	return "", errors.New("the server answered with status 503")
}

// watching returns a core that follows the bucket, and a watch of the site; s.watch reads it.
func (w *world) watching(p *site, when coreapi.When) (*Schedules, *record) {
	s := w.following()
	s.cfg.Read = p.read
	when.Every, when.Watch = "1h", &coreapi.Watch{URL: "https://shop.example.com/1"}
	return s, w.create(s, request{Name: "price", Text: "Tell me the price.", When: when})
}

// A change is one input, also when the core dies before it records that; the next change is another.
func TestAChangeOfAPageIsOneInput(t *testing.T) {
	w := embedded(t)
	p := &site{}
	p.shows("10")
	s, r := w.watching(p, coreapi.When{})
	ctx, now := natstest.Context(t), *w.now.Load()
	look := func(page string) {
		t.Helper()
		p.shows(page)
		fresh, err := s.load(ctx, r.key())
		if err == nil {
			err = s.watch(ctx, fresh, now)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	look("10")
	if n := len(w.inputs()); n != 0 {
		t.Fatalf("%d inputs without a change", n)
	}
	p.shows("11")
	dead, err := s.load(ctx, r.key())
	if err != nil {
		t.Fatal(err)
	}
	dead.revision = 1 // it cannot record what it has seen
	if err := s.watch(ctx, dead, now); err != nil {
		t.Fatal(err)
	}
	look("11")
	look("11")
	look("12")
	all := w.inputs()
	if len(all) != 2 || all[0].Origin != "web" || all[0].Source != "schedule:price" ||
		!strings.HasPrefix(all[0].Text, "Tell me the price.\n\nThe text between") ||
		!strings.Contains(all[0].Text, "https://shop.example.com/1\nThe value was \"10\". It is now \"11\".") ||
		!strings.Contains(all[1].Text, `The value was "11". It is now "12".`) {
		t.Errorf("%+v", all)
	}
}

// While the input of a change waits, another is not made; the change is seen afterwards.
func TestAWatchWaitsForItsInput(t *testing.T) {
	w := embedded(t)
	p := &site{}
	p.shows("10")
	s, r := w.watching(p, coreapi.When{})
	ctx := natstest.Context(t)
	state := decide.New(session)
	state.Queue = []decide.Pending{{Writer: subject.ScheduleWriter, Source: "schedule:price"}}
	w.state.Store(state)
	p.shows("11")
	if err := s.watch(ctx, r, *w.now.Load()); err != nil || len(w.inputs()) != 0 {
		t.Fatalf("%v, %v", err, w.inputs())
	}
	w.state.Store(decide.New(session))
	if err := s.watch(ctx, r, *w.now.Load()); err != nil || len(w.inputs()) != 1 {
		t.Errorf("%v, %v", err, w.inputs())
	}
}

// A page that cannot be read is a problem that people and the agent see, until it can be read again.
func TestAPageThatCannotBeReadIsAProblem(t *testing.T) {
	w := embedded(t)
	p := &site{}
	s := w.following()
	s.cfg.Read = p.read
	q := request{Name: "price", Text: "x", When: coreapi.When{Every: "1h", Watch: &coreapi.Watch{URL: "https://shop.example.com/1"}}}
	if _, _, err := s.create(natstest.Context(t), session, "t1", q); err == nil || !strings.Contains(err.Error(), "status 503") {
		t.Fatalf("created: %v", err)
	}
	p.shows("10")
	r := w.create(s, q)
	problem := func() string {
		t.Helper()
		fresh, err := s.load(natstest.Context(t), r.key())
		if err == nil {
			err = s.watch(natstest.Context(t), fresh, *w.now.Load())
		}
		if err != nil {
			t.Fatal(err)
		}
		return s.info(fresh).Problem
	}
	p.page.Store(nil)
	if got := problem(); got != "the page was not read: the server answered with status 503" {
		t.Errorf("problem %q", got)
	}
	p.shows("11")
	if got := problem(); got != "" || len(w.inputs()) != 1 {
		t.Errorf("problem %q, inputs %v", got, w.inputs())
	}
}

// The clock reads the page; the watch is over after its count of occurrences.
func TestTheClockReadsThePage(t *testing.T) {
	w := embedded(t)
	p := &site{}
	p.shows("10")
	s, r := w.watching(p, coreapi.When{Count: 1})
	p.shows("11")
	later := w.now.Load().Add(3600e9)
	w.now.Store(&later)
	running := w.core()
	running.cfg.Read = p.read
	t.Cleanup(running.Start(context.Background()))
	natstest.Eventually(t, "it is over", func() bool {
		_, err := s.bucket.Get(natstest.Context(t), r.key())
		return errors.Is(err, bus.ErrNotFound)
	})
	if got := w.texts(); len(got) != 1 || !strings.Contains(got[0], `It is now "11".`) {
		t.Errorf("inputs are %v", got)
	}
}

// A server that hangs delays no other schedule, and no more pages are read than that.
func TestAPageThatHangsDelaysNothing(t *testing.T) {
	w := embedded(t)
	p := &site{}
	p.shows("10")
	s, r := w.watching(p, coreapi.When{})
	begun, hang := make(chan struct{}, 2*ofOneAgent), make(chan struct{})
	s.cfg.Read = func(ctx context.Context, _ subject.Ref, _, _, _ string) (string, error) {
		begun <- struct{}{}
		select {
		case <-hang:
		case <-ctx.Done():
		}
		return "10", nil
	}
	named := func(a subject.Agent, n int) *record {
		other := *r
		other.Agent, other.Name = a, fmt.Sprint(n)
		return &other
	}
	late := w.now.Load().Add(2 * 3600e9)
	for i := range 2 * ofOneAgent {
		if err := s.handleWatch(natstest.Context(t), named("main", i), late); err != nil {
			t.Fatal(err)
		}
	}
	for range ofOneAgent {
		<-begun
	}
	if n := s.skipped.Load(); n != ofOneAgent {
		t.Errorf("%d were skipped, want %d", n, ofOneAgent)
	}
	for _, a := range []subject.Agent{"b", "c", "d"} {
		for i := range ofOneAgent {
			if !s.beginLook(named(a, i)) {
				t.Fatalf("agent %s waits for another's pages", a)
			}
		}
	}
	if s.beginLook(named("e", 0)) {
		t.Errorf("more than %d pages are read", atOnce)
	}
	s.endLook(named("b", 0))
	if s.beginLook(named("b", 1)) || !s.beginLook(named("b", 0)) {
		t.Error("want a page that is being read refused, and one that was read taken")
	}
	close(hang)
	s.looking.Wait()
	if got := w.texts(); len(got) > 0 {
		t.Errorf("inputs are %v", got)
	}
}
