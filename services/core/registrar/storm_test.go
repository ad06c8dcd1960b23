package registrar_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/registrar"
	view "skandha.dev/services/internal/registry"
	"skandha.dev/services/test/natstest"
)

// enough registrations make a storm, however slow the machine is, and so many
// requests under way: the more, the longer each waits for its answer.
const enough, underWay = 200, 32

// How long the storm blows at least.
func stormTime() time.Duration {
	switch {
	case os.Getenv("SKANDHA_REQUIRE") == "all":
		return 30 * time.Second
	case testing.Short():
		return 6 * time.Second
	}
	return 10 * time.Second
}

// stormy is the manifest of one of 200 plugins: constraints that agree with the
// numbers, so that there is no cycle, and a tool for whose name each competes with
// one other.
func stormy(r *rand.Rand, i int) plugin.Manifest {
	name := func(i int) subject.Plugin { return subject.Plugin(fmt.Sprintf("p%03d", i)) }
	return m(string(name(i)), func(m *plugin.Manifest) {
		m.Priority = int32(r.IntN(3))
		if i > 0 {
			switch r.IntN(4) {
			case 0:
				m.Dependencies = []subject.Plugin{name(r.IntN(i))}
			case 1:
				m.RunAfter = []subject.Plugin{name(r.IntN(i))}
			}
		}
		if i < 199 && r.IntN(3) == 0 {
			m.RunBefore = []subject.Plugin{name(i + 1 + r.IntN(199-i))}
		}
	}, offers(fmt.Sprintf("tool:%d", i/2), fmt.Sprintf("own:%d", i)))
}

// warm has every core do once what makes its connection what it stays.
func (w *world) warm() {
	w.Helper()
	first := m("first")
	// Its lease may end meanwhile; then it is unknown.
	fine := func(err error) bool { return err == nil || errors.Is(err, bus.ErrNotFound) }
	if _, err := w.register(first, "i"); !fine(err) {
		w.Fatal(err)
	}
	for _, c := range w.cores {
		ctx := natstest.Context(w)
		if _, err := c.Suspend(ctx, first.Name, "", view.ByOperator); !fine(err) {
			w.Fatal(err)
		}
		if _, err := c.Resume(ctx, first.Name); !fine(err) {
			w.Fatal(err)
		}
	}
	for range 2 {
		if _, err := w.unregister(first, "i", true); err != nil {
			w.Fatal(err)
		}
	}
}

// Two hundred plugins come and go. Some unregister, some are killed, some return
// under the same instance. Every snapshot is complete.
func TestAStormOfPlugins(t *testing.T) {
	w := newWorld(t, 3, registrar.Config{Lease: time.Second})
	w.warm()
	before := runtime.NumGoroutine()
	var seen atomic.Int64
	views := []*view.View{}
	for _, c := range w.cores {
		views = append(views, c.view)
	}
	other, err := view.Watch(natstest.Context(t), w.b, natstest.Logger(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range append(views, other) {
		defer v.OnChange(func(s *view.Snapshot) {
			seen.Add(1)
			if err := check(s); err != nil {
				t.Errorf("revision %d: %v", s.Revision, err)
			}
		})()
	}
	end := time.Now().Add(stormTime())
	var g sync.WaitGroup
	var came, refused, lost atomic.Int64
	room := make(chan struct{}, underWay)
	ask := func(f func() (plugin.Lease, error)) (plugin.Lease, error) {
		room <- struct{}{}
		defer func() { <-room }()
		return f()
	}
	for i := range 200 {
		g.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 7)) // repeatable on purpose
			for n := 0; (time.Now().Before(end) || came.Load() < enough) && !t.Failed(); n++ {
				one := stormy(r, i)
				inst := subject.Instance(fmt.Sprintf("i%d", n/(1+r.IntN(2))))
				l, err := ask(func() (plugin.Lease, error) { return w.register(one, inst) })
				switch {
				case err == nil && l.State != plugin.Gone:
					came.Add(1)
				case bus.CodeOf(err) == bus.CodeConflict:
					refused.Add(1)
					<-time.After(time.Duration(r.IntN(300)) * time.Millisecond) // a plugin's own pace
					continue
				case errors.Is(err, bus.ErrNotFound):
					lost.Add(1) // before it was answered
					continue
				default:
					t.Errorf("%s: %+v %v", one.Name, l, err)
					return
				}
				for range r.IntN(4) {
					<-time.After(time.Duration(r.IntN(400)) * time.Millisecond)
					if _, err := ask(func() (plugin.Lease, error) { return w.heartbeat(one, inst) }); err != nil &&
						bus.CodeOf(err) != bus.CodeNotFound {
						t.Errorf("%s: heartbeat: %v", one.Name, err)
					} else if err != nil {
						lost.Add(1)
					}
				}
				if r.IntN(4) == 0 {
					continue // it dies
				}
				for range 2 {
					if _, err := ask(func() (plugin.Lease, error) { return w.unregister(one, inst, true) }); err != nil {
						t.Errorf("%s: unregister: %v", one.Name, err)
					}
				}
			}
		})
	}
	g.Wait()
	for _, v := range append(views, other) {
		natstest.Eventually(t, "all to be gone", func() bool {
			s := states(v.Snapshot())
			return !strings.Contains(s, "active") && !strings.Contains(s, "waiting") && !strings.Contains(s, "draining")
		})
	}
	other.Close()
	t.Logf("%d registrations, %d refused, %d leases lost, %d snapshots", came.Load(), refused.Load(), lost.Load(),
		seen.Load())
	if seen.Load() < enough {
		t.Errorf("that was no storm: %d snapshots", seen.Load())
	}
	natstest.Eventually(t, "what was started to end", func() bool { return runtime.NumGoroutine() <= before })
	for _, c := range w.cores { // and it still works
		c.eventually(t, states(other.Snapshot()))
	}
	natstest.Eventually(t, "one more to register", func() bool {
		l, err := w.register(m("after"), "a-1")
		if err != nil && !errors.Is(err, bus.ErrNotFound) { // its lease may have ended before it was answered
			t.Fatal(err)
		}
		return l.State == plugin.Active
	})
}
