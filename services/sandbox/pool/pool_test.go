package pool_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"skandha.dev/services/sandbox/agent"
	"skandha.dev/services/sandbox/driver"
	"skandha.dev/services/sandbox/pool"
	"skandha.dev/services/test/drivertest"
	"skandha.dev/services/test/natstest"
)

func open(t *testing.T, cfg pool.Config) (*pool.Pool, *drivertest.Driver) {
	t.Helper()
	d := drivertest.New(t)
	cfg.Driver, cfg.Logger = d, natstest.Logger(t)
	p := pool.New(cfg)
	t.Cleanup(p.Close)
	return p, d
}

func get(t *testing.T, p *pool.Pool) *pool.Sandbox {
	t.Helper()
	b, err := p.Get(natstest.Context(t), "", "")
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (s stats) eventually(t *testing.T, what string, want func(pool.Stats) bool) {
	t.Helper()
	natstest.Eventually(t, what, func() bool { return want(s.p.Stats()) })
}

type stats struct{ p *pool.Pool }

func warm(n int) func(pool.Stats) bool {
	return func(s pool.Stats) bool { return s.Warm == n && s.Starting == 0 }
}

func TestAWarmSandboxIsGivenAtOnceAndReplaced(t *testing.T) {
	p, d := open(t, pool.Config{Warm: 2})
	p.Fill()
	stats{p}.eventually(t, "two sandboxes are warm", warm(2))
	first, second := get(t, p), get(t, p)
	if s := p.Stats(); s.Drained != 0 || s.Gets != 2 {
		t.Errorf("%d of %d had to wait", s.Drained, s.Gets)
	}
	if first.Name() == second.Name() {
		t.Error("a sandbox was given twice")
	}
	exit, err := first.Run(natstest.Context(t), agent.Run{Kind: agent.Python, Code: "6*7"})
	if err != nil || string(exit.Result) != "42" {
		t.Errorf("got %+v, %v", exit, err)
	}
	stats{p}.eventually(t, "they are replaced", warm(2))
	if d.Started() != 4 {
		t.Errorf("%d sandboxes were started, want 4", d.Started())
	}
}

func TestADrainedPoolStartsASandboxForWhoAsks(t *testing.T) {
	p, d := open(t, pool.Config{})
	p.Fill()
	b := get(t, p)
	if s := p.Stats(); s.Drained != 1 || s.Used != 1 || s.Warm != 0 || s.Starts.Last <= 0 {
		t.Errorf("got %+v", s)
	}
	if err := p.Destroy(natstest.Context(t), b); err != nil {
		t.Fatal(err)
	}
	if n := len(d.Sandboxes()); n != 0 {
		t.Errorf("%d sandboxes are left", n)
	}
	p.Discard(b) // again: nothing
	stats{p}.eventually(t, "it is counted once",
		func(s pool.Stats) bool { return s.Destroyed == 1 && s.Used == 0 && s.Ending == 0 })
}

func TestASandboxOnItsWayIsForWhoWaits(t *testing.T) {
	p, d := open(t, pool.Config{Warm: 1})
	began, goOn := make(chan struct{}, 10), make(chan struct{})
	d.BeforeStart = func(ctx context.Context, _ driver.Spec) error {
		began <- struct{}{}
		select {
		case <-goOn:
		case <-ctx.Done():
		}
		return nil
	}
	p.Fill()
	<-began
	got := make(chan *pool.Sandbox)
	go func() { got <- get(t, p) }()
	stats{p}.eventually(t, "it waits", func(s pool.Stats) bool { return s.Waiting == 1 })
	if s := p.Stats(); s.Starting != 1 {
		t.Errorf("%d sandboxes are started for one who waits", s.Starting)
	}
	close(goOn)
	<-got
	stats{p}.eventually(t, "the warm one is made after all", warm(1))
}

func TestWhoWaitsIsServedInOrderWhenAllAreInUse(t *testing.T) {
	full := make(chan struct{}, 10)
	p, _ := open(t, pool.Config{Max: 2, Full: func() { full <- struct{}{} }})
	a, b := get(t, p), get(t, p)
	type got struct {
		who     int
		sandbox *pool.Sandbox
	}
	sandboxes := make(chan got, 2)
	for who := range 2 {
		go func() {
			sandbox, err := p.Get(natstest.Context(t), "", "")
			if err != nil {
				t.Error(err)
			}
			sandboxes <- got{who, sandbox}
		}()
		stats{p}.eventually(t, "it waits", func(s pool.Stats) bool { return s.Waiting == who+1 })
	}
	<-full
	if b := p.Blocked(); len(b) != 2 || b[0].Own {
		t.Errorf("two wait for a place: %+v", b)
	}
	for who, sandbox := range []*pool.Sandbox{a, b} {
		p.Discard(sandbox)
		if g := <-sandboxes; g.who != who {
			t.Errorf("%d was served before %d", g.who, who)
		}
	}
	if b := p.Blocked(); len(b) != 0 {
		t.Errorf("nobody waits: %+v", b)
	}
	if s := p.Stats(); s.Used != 2 || s.Waiting != 0 {
		t.Errorf("got %+v", s)
	}
}

func TestAtTheirDeadlineThoseWhoWaitAreToldWhy(t *testing.T) {
	p, _ := open(t, pool.Config{Max: 1})
	b := get(t, p)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := p.Get(ctx, "", "")
	if !errors.Is(err, pool.ErrFull) || !errors.Is(err, context.DeadlineExceeded) ||
		!strings.Contains(err.Error(), "limit is 1") {
		t.Errorf("got %v", err)
	}
	p.Discard(b)
	get(t, p)
}

func TestAnOwnerLeavesSandboxesForOthers(t *testing.T) {
	p, _ := open(t, pool.Config{Max: 6})
	take := func(ctx context.Context, owner string) error {
		_, err := p.Get(ctx, owner, "")
		return err
	}
	for i := range 4 {
		if err := take(natstest.Context(t), "ada"); err != nil {
			t.Fatalf("%d: %v", i, err)
		}
	}
	err := take(expired(t), "ada")
	if !errors.Is(err, pool.ErrFull) || !strings.Contains(err.Error(), "4 of 6") ||
		!strings.Contains(err.Error(), "SKANDHA_SANDBOX_MAX") {
		t.Errorf("a fifth: %v", err)
	}
	for range 2 {
		if err := take(natstest.Context(t), "bob"); err != nil {
			t.Errorf("bob: %v", err)
		}
	}
	err = take(expired(t), "eve")
	if !errors.Is(err, pool.ErrFull) || !strings.Contains(err.Error(), "limit is 6") {
		t.Errorf("all are in use: %v", err)
	}
}

func TestTheOwnerWithTheFewestSandboxesIsServedFirst(t *testing.T) {
	p, _ := open(t, pool.Config{Max: 3})
	var first *pool.Sandbox
	for _, owner := range []string{"bob", "ada", "ada"} {
		b, err := p.Get(natstest.Context(t), owner, "")
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = b
		}
	}
	got := make(chan string, 3)
	for i, owner := range []string{"ada", "ada", "eve"} {
		go func() {
			if b, err := p.Get(natstest.Context(t), owner, ""); err == nil {
				got <- b.Owner
			}
		}()
		stats{p}.eventually(t, "it waits", func(s pool.Stats) bool { return s.Waiting == i+1 })
	}
	if b := p.Blocked(); len(b) != 3 || b[0] != (pool.Want{Owner: "eve"}) || b[1].Owner != "ada" {
		t.Errorf("got %+v", b)
	}
	p.Discard(first)
	if owner := <-got; owner != "eve" {
		t.Errorf("%s was served first", owner)
	}
}

func TestAWarmSandboxMakesRoomForOneWithPackages(t *testing.T) {
	p, d := open(t, pool.Config{Warm: 1, Max: 1})
	if err := d.Install(t.Context(), driver.Install{ID: "set"}); err != nil {
		t.Fatal(err)
	}
	p.Fill()
	stats{p}.eventually(t, "one is warm", warm(1))
	b, err := p.Get(natstest.Context(t), "", "set")
	if err != nil || b.Set != "set" {
		t.Fatalf("got %+v, %v", b, err)
	}
	if s := p.Stats(); s.Warm+s.Starting != 0 || s.Destroyed != 1 || s.Drained != 1 {
		t.Errorf("got %+v", s)
	}
	if _, err := p.Get(expired(t), "", "missing"); !errors.Is(err, pool.ErrFull) {
		t.Errorf("got %v", err)
	}
	p.Discard(b)
	if _, err := p.Get(natstest.Context(t), "", "missing"); !errors.Is(err, driver.ErrNoSet) {
		t.Errorf("got %v", err)
	}
}

func expired(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

func TestAWarmSandboxThatDiesIsReplaced(t *testing.T) {
	p, d := open(t, pool.Config{Warm: 1})
	p.Fill()
	stats{p}.eventually(t, "one is warm", warm(1))
	old := d.Sandboxes()[0]
	old.End(driver.ErrMemory)
	stats{p}.eventually(t, "another one is warm", func(s pool.Stats) bool { return s.Died == 1 && s.Warm == 1 })
	if b := get(t, p); b.Name() == old.Name() {
		t.Error("the dead one was given")
	}
}

func TestASandboxThatEndedSaysWhatTheDriverSays(t *testing.T) {
	p, d := open(t, pool.Config{})
	b := get(t, p)
	if err := b.Ended(); err != nil {
		t.Fatalf("it lives, and says %v", err)
	}
	d.Sandboxes()[0].End(driver.ErrMemory)
	<-b.Done()
	if err := b.Ended(); !errors.Is(err, driver.ErrMemory) {
		t.Errorf("got %v", err)
	}
}

func TestFailedStartsAreTheAnswerAndAreTriedAgainLater(t *testing.T) {
	p, d := open(t, pool.Config{Warm: 1})
	var starts atomic.Int64
	var works atomic.Bool
	d.BeforeStart = func(context.Context, driver.Spec) error {
		starts.Add(1)
		if works.Load() {
			return nil
		}
		return fmt.Errorf("%w: install it", driver.ErrUnavailable)
	}
	began := time.Now()
	p.Fill()
	stats{p}.eventually(t, "it has failed", func(s pool.Stats) bool { return s.Failed > 0 })
	if _, err := p.Get(natstest.Context(t), "", ""); !errors.Is(err, driver.ErrUnavailable) ||
		!strings.Contains(err.Error(), "install it") {
		t.Errorf("got %v", err)
	}
	if s := p.Stats(); !strings.Contains(s.LastError, "install it") || s.LastErrorAt.IsZero() {
		t.Errorf("got %+v", s)
	}
	n := starts.Load() // by Fill, by Get, and after at least half a second each
	if most := 2 + int64(time.Since(began)/(500*time.Millisecond)); n > most {
		t.Errorf("it was tried %d times, want at most %d", n, most)
	}
	works.Store(true)
	stats{p}.eventually(t, "it works", warm(1))
}

func TestASandboxWithoutAnInterpreterIsDestroyed(t *testing.T) {
	d := drivertest.New(t)
	p := pool.New(pool.Config{Driver: mute{d}, StartTimeout: 200 * time.Millisecond, Logger: natstest.Logger(t)})
	defer p.Close()
	if _, err := p.Get(natstest.Context(t), "", ""); err == nil || !strings.Contains(err.Error(), "interpreter") {
		t.Errorf("got %v", err)
	}
	natstest.Eventually(t, "nothing is left", func() bool { return len(d.Sandboxes()) == 0 })
}

// mute starts sandboxes that do not answer.
type mute struct{ *drivertest.Driver }

func (m mute) Start(ctx context.Context, spec driver.Spec) (driver.Sandbox, error) {
	spec.Args = []string{"-c", "import time; time.sleep(1e6)"}
	return m.Driver.Start(context.WithoutCancel(ctx), spec) // whatever is left of the time for its interpreter
}

func TestRefillsWaitWhileCallsWork(t *testing.T) {
	p, _ := open(t, pool.Config{Warm: 1})
	p.Fill()
	stats{p}.eventually(t, "one is warm", warm(1))
	done, began := p.Working(), time.Now()
	get(t, p)
	// It does not wait for ever: after a second that proves nothing.
	if s := p.Stats(); s.Started+int64(s.Starting) != 1 && time.Since(began) < time.Second {
		t.Errorf("a sandbox is started while a call works: %+v", s)
	}
	done()
	stats{p}.eventually(t, "it is refilled", warm(1))
	// A call that works for ever does not keep the pool empty.
	defer p.Working()()
	get(t, p)
	stats{p}.eventually(t, "it is refilled all the same", warm(1))
}

func TestCloseLeavesNothing(t *testing.T) {
	d := drivertest.New(t)
	before := runtime.NumGoroutine()
	p := pool.New(pool.Config{Driver: d, Warm: 2, Max: 3, Logger: natstest.Logger(t)})
	p.Fill()
	stats{p}.eventually(t, "they are warm", warm(2))
	b := get(t, p)
	stats{p}.eventually(t, "they are warm again", warm(2))
	waiting := make(chan error)
	go func() {
		_, err := p.Get(natstest.Context(t), "", "a set") // with no place: two are warm, and end
		waiting <- err
	}()
	p.Close()
	if err := <-waiting; err == nil {
		t.Error("a closed pool gave a sandbox")
	}
	if _, err := p.Get(natstest.Context(t), "", ""); !errors.Is(err, pool.ErrClosed) {
		t.Errorf("got %v", err)
	}
	if n := len(d.Sandboxes()); n != 0 {
		t.Errorf("%d sandboxes are left", n)
	}
	if b.Ended() == nil {
		t.Error("a sandbox that was in use lives")
	}
	p.Discard(b)
	p.Close()
	natstest.Eventually(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= before })
}
