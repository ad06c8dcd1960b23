package feed_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/listener/contract"
	"skandha.dev/services/listener/emitter"
	"skandha.dev/services/listener/feed"
	"skandha.dev/services/listener/mapping"
	"skandha.dev/services/test/listenertest"
	"skandha.dev/services/test/natstest"
)

const listener subject.Writer = "home"

func each() mapping.Config {
	return mapping.Config{Session: string(listenertest.Ref.Session), TextTemplate: "{{.text}}"}
}

func newFeed(t *testing.T, b *journal.Journal, stats *feed.Stats, rules map[string]mapping.Config) *feed.Feed {
	t.Helper()
	f, err := feed.New(mapping.Source{Kind: "sensor", Listener: listener}, rules,
		feed.Deps{Bus: b, Logger: natstest.Logger(t), Stats: stats})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func start(t *testing.T, f *feed.Feed, e contract.Emitter) {
	t.Helper()
	if err := f.Start(natstest.Context(t), e); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = f.Stop(ctx) // in haste
	})
}

func log(t *testing.T, b *journal.Journal) contract.Emitter {
	return emitter.New(b.Bus, listener, &emitter.Stats{}, natstest.Logger(t))
}

func item(n int, done func()) feed.Item {
	return feed.Item{Rules: []string{"all"}, Done: done, Reading: mapping.Reading{
		Name: "n", Data: fmt.Append(nil, n), Time: time.Now(), ID: fmt.Sprint(n),
	}}
}

func TestWhatWaitsIsBoundedAndTheRestIsCounted(t *testing.T) {
	b := natstest.Connect(t, natstest.Start(t))
	gate := listenertest.NewGate(log(t, b))
	gate.Hold()
	stats := &feed.Stats{}
	f := newFeed(t, b, stats, map[string]mapping.Config{"all": each()})
	start(t, f, gate)
	taken := 0
	const offered = 5000
	for n := range offered {
		if f.Offer(item(n, nil)) {
			taken++
		}
	}
	if most := feed.MaxWaiting + 64; taken < feed.MaxWaiting || taken > most {
		t.Errorf("%d were taken, want %d to %d", taken, feed.MaxWaiting, most)
	}
	if full := stats.Full.Load(); int(full) != offered-taken {
		t.Errorf("%d were dropped, and %d were counted", offered-taken, full)
	}
	large := item(0, nil)
	large.Reading.Data = make([]byte, feed.MaxWaitingBytes)
	if f.Offer(large) {
		t.Error("more bytes wait than may")
	}
}

func TestDoneIsCalledWhenTheInputIsStored(t *testing.T) {
	b := natstest.Connect(t, natstest.Start(t))
	gate := listenertest.NewGate(log(t, b))
	gate.Hold()
	f := newFeed(t, b, nil, map[string]mapping.Config{"all": each()})
	start(t, f, gate)
	done := make(chan struct{})
	if err := f.Put(natstest.Context(t), item(1, func() { close(done) })); err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, "the input is under way", func() bool { return len(gate.Seen()) > 0 })
	select {
	case <-done:
		t.Error("it was done before the log has it")
	default:
	}
	gate.Release()
	<-done
	if in := listenertest.Log(t, b, listenertest.Ref); len(in) != 1 || in[0].Origin != "sensor:home" {
		t.Errorf("the log holds %+v", in)
	}
}

// The bus is away at the start, and has no bucket when it comes.
func TestReadingsWaitForTheBus(t *testing.T) {
	s := natstest.Start(t)
	b := natstest.Dial(t, bus.Config{InProcess: s, Token: s.Token()})
	f := newFeed(t, b, nil, map[string]mapping.Config{"all": each()})
	start(t, f, log(t, b))
	var done sync.WaitGroup
	done.Add(2)
	for n := range 2 {
		if err := f.Put(natstest.Context(t), item(n, done.Done)); err != nil {
			t.Fatal(err)
		}
	}
	natstest.Eventually(t, "it is degraded", func() bool { return f.Health().State == contract.StateDegraded })
	natstest.EnsureStreams(t, b)
	done.Wait()
	natstest.Eventually(t, "it is ok", func() bool { return f.Health().State == contract.StateOK })
	if in := listenertest.Log(t, b, listenertest.Ref); len(in) != 2 {
		t.Errorf("the log holds %+v", in)
	}
}

// Another process has stored a state meanwhile: it is read, and the reading is taken again.
// Nothing is lost then, though an input may be there twice.
func TestAStateOfAnotherProcessIsRead(t *testing.T) {
	b := natstest.Connect(t, natstest.Start(t))
	rules := map[string]mapping.Config{"all": each()}
	rule := rules["all"]
	rule.OnChange = true
	rules["all"] = rule
	one, other := newFeed(t, b, nil, rules), newFeed(t, b, nil, rules)
	start(t, one, log(t, b))
	start(t, other, log(t, b))
	put := func(f *feed.Feed, text, id string) {
		t.Helper()
		done := make(chan struct{})
		it := item(0, func() { close(done) })
		it.Reading.Data, it.Reading.ID = []byte(text), id
		if err := f.Put(natstest.Context(t), it); err != nil {
			t.Fatal(err)
		}
		<-done
	}
	count := func() int {
		return len(listenertest.Log(t, b, listenertest.Ref))
	}
	put(one, "a", "1")
	put(other, "b", "2")
	put(one, "c", "3")
	before := count()
	put(one, "c", "4")
	if before < 3 || count() != before {
		t.Errorf("%d inputs, then %d; want 3 or more, and none without a change", before, count())
	}
}

// refusing is an emitter that finds every input wrong.
type refusing struct{}

func (refusing) EmitInput(context.Context, contract.Input) (contract.Receipt, error) {
	return contract.Receipt{}, contract.ErrInvalid
}

func TestAnInputThatIsWrongBlocksNothing(t *testing.T) {
	b := natstest.Connect(t, natstest.Start(t))
	stats := &feed.Stats{}
	f := newFeed(t, b, stats, map[string]mapping.Config{"all": each()})
	start(t, f, refusing{})
	for n := range 3 {
		done := make(chan struct{})
		if err := f.Put(natstest.Context(t), item(n, func() { close(done) })); err != nil {
			t.Fatal(err)
		}
		<-done
	}
	if stats.Invalid.Load() != 3 {
		t.Errorf("%d are counted", stats.Invalid.Load())
	}
}

func TestAWindowIsSummarisedWithoutAnotherReading(t *testing.T) {
	b := natstest.Connect(t, natstest.Start(t))
	f := newFeed(t, b, nil, map[string]mapping.Config{
		"all": {Session: string(listenertest.Ref.Session), Window: 50 * time.Millisecond},
	})
	start(t, f, log(t, b))
	if err := f.Put(natstest.Context(t), item(7, nil)); err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, "the summary", func() bool { return len(listenertest.Log(t, b, listenertest.Ref)) == 1 })
}

func TestPutFailsWhenItStops(t *testing.T) {
	b := natstest.Connect(t, natstest.Start(t))
	f := newFeed(t, b, nil, map[string]mapping.Config{"all": each()})
	start(t, f, log(t, b))
	if err := f.Stop(natstest.Context(t)); err != nil {
		t.Fatal(err)
	}
	if err := f.Put(natstest.Context(t), item(1, nil)); !errors.Is(err, contract.ErrNotTaken) {
		t.Errorf("%v, want ErrNotTaken", err)
	}
}
