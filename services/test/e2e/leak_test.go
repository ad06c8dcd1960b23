package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core"
	contract "skandha.dev/services/internal/executor"
	"skandha.dev/services/internal/executor/engine"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/store/sqlite"
	. "skandha.dev/services/test/e2e/e2etest"
	"skandha.dev/services/test/natstest"
)

// After many turns nothing is left of them: no goroutine, no subscription, and no
// more memory than the executors' ids need.
func TestNothingLeaks(t *testing.T) {
	srv := natstest.StartProcess(t, "", 0)
	dir := t.TempDir()
	effects := filepath.Join(dir, "effects.jsonl")
	st, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(dir, "view.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	buses := []*journal.Journal{
		natstest.ConnectURL(t, srv.URL()), natstest.ConnectURL(t, srv.URL()), natstest.ConnectURL(t, srv.URL()),
		natstest.ConnectURL(t, srv.URL()),
	}
	c, err := core.New(core.Config{}, core.Options{Drain: 100 * time.Millisecond},
		core.Deps{Bus: buses[0], Store: st, Log: natstest.Logger(t)})
	if err != nil {
		t.Fatal(err)
	}
	background(t, c.Run)
	background(t, func(ctx context.Context) error {
		return engine.Serve(ctx, buses[1], engine.Config{
			Kind: subject.Runner, Service: "e2e", Offer: engine.Offer{Tools: Specs()},
			Pools: pools, Work: Tools(effects, buses[1].Instance()), DrainTimeout: time.Second,
		})
	})
	background(t, func(ctx context.Context) error {
		return engine.Serve(ctx, buses[2], engine.Config{
			Kind: subject.Provider, Service: "e2e", Pools: pools, DrainTimeout: time.Second,
			Offer: engine.Offer{Providers: []provider.Info{{Name: "script", Model: "m"}}}, Work: Model,
		})
	})
	said, last := int64(0), uint64(0)
	turns := func(n int) {
		t.Helper()
		for range n {
			script := once(Args{N: int(said)})
			switch said % 5 {
			case 0:
				script = Script{}
			case 1:
				script.Rounds = append(script.Rounds,
					Round{{ID: "1", Tool: ToolAgain}, {ID: "2", Tool: ToolOnce, Args: Args{Fail: said%10 == 1}}})
			case 2:
				script = once(Args{MS: 60_000})
			}
			ref := Ref(fmt.Sprintf("s%d", said%10))
			last = publish(t, buses[3], ref, subject.Input, event.Input{Text: script.Text()})
			if said%5 == 2 {
				last = publish(t, buses[3], ref, subject.Cancel, event.Cancel{Sequence: last})
			}
			said++
		}
		awaitAcked(t, buses[3], last)
		Eventually(t, "the core serves nothing", func() bool { return c.Counters()["open_sessions"] == 0 })
	}
	turns(300)
	before := settle(c.Counters, buses)
	turns(1000)
	t.Cleanup(func() {
		if t.Failed() {
			var b strings.Builder
			_ = pprof.Lookup("goroutine").WriteTo(&b, 1)
			t.Log(b.String())
		}
	})
	Eventually(t, "nothing is held any more", func() bool { return !settle(c.Counters, buses).more(before) })
	t.Logf("before %+v, after 1000 turns %+v", before, settle(c.Counters, buses))
}

var pools = []contract.Pool{{Name: contract.DefaultPool, Slots: 64}}

// held is what a system holds on to.
type held struct {
	Goroutines    int
	Subscriptions int
	Sessions      int64 // that the core serves
	Heap          uint64
}

func (h held) more(before held) bool {
	// the windows of ten sessions fill up, and executors keep the ids of attempts, some 30 bytes
	// each
	const noise = 2 << 20
	return h.Goroutines > before.Goroutines+3 || h.Subscriptions > before.Subscriptions || h.Sessions > 0 ||
		h.Heap > before.Heap+noise
}

func settle(counters func() map[string]int64, buses []*journal.Journal) held {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	h := held{Goroutines: runtime.NumGoroutine(), Sessions: counters()["open_sessions"], Heap: m.HeapAlloc}
	for _, b := range buses {
		h.Subscriptions += b.Conn().NumSubscriptions()
	}
	return h
}

func publish(t *testing.T, b *journal.Journal, ref subject.Ref, kind subject.CauseKind, body any) uint64 {
	t.Helper()
	data, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	seq, err := b.PublishCause(ctx, ref, kind, "test", "", data)
	if err != nil {
		t.Fatal(err)
	}
	return seq
}

func background(t *testing.T, run func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
