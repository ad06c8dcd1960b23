package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/directory"
	"skandha.dev/services/internal/coreapi"
	contract "skandha.dev/services/internal/executor"
	"skandha.dev/services/internal/executor/engine"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/natsserver"
)

// The tools of B17: a person must approve the first, and the second runs until it is released.
const (
	askTool  = "bench:ask"
	holdTool = "bench:hold"
)

const (
	// warmSessions wait before anything is weighed: they fill what is bounded, such as the cache of states.
	warmSessions = 2000
	// inFlight bounds the inputs that wait for core.
	inFlight = 1000
)

// The server keeps blocks of the log in memory for a while after they were used, and the ids of inputs for longer.
const weighings = 4

var (
	logRests = 5 * time.Second // between two weighings
	idsKept  = bus.DuplicateWindow
)

// waitingSessions is B17: what sessions take in the memory of server, core and executors together while they wait for a
// person, and while their tool runs; and what a core does at its start about those that wait.
func waitingSessions(ctx context.Context, o Options) (rows []Row, err error) {
	err = withRig(ctx, o, natsserver.Relaxed, func(r *rig) error {
		c, err := newCrowd(ctx, r)
		if err != nil {
			return err
		}
		warm, n, live := o.n(warmSessions), o.n(20_000), o.n(1000)
		if err := c.wait(ctx, warm); err != nil {
			return err
		}
		before, err := weighSelf(ctx)
		if err != nil {
			return err
		}
		if err := c.wait(ctx, n); err != nil {
			return err
		}
		if err := rest(ctx, idsKept); err != nil {
			return err
		}
		after, err := weighSelf(ctx)
		if err != nil {
			return err
		}
		held, err := c.hold(ctx, live)
		if err != nil {
			return err
		}
		took, loaded, err := r.restart(ctx, warm+n+live)
		rows = append(rows,
			absolute("B17", "memory per 1,000 waiting sessions, embedded", perThousand(after.heap-before.heap, n), 1, "MiB"),
			absolute("B17", fmt.Sprintf("goroutines more, %d more sessions wait", n), float64(after.goroutines-before.goroutines),
				10, "goroutines"),
			absolute("B17", "memory per 1,000 live sessions, embedded", perThousand(held.heap-after.heap, live), 40, "MiB"),
			absolute("B17", fmt.Sprintf("a core's start until it is ready, %d sessions wait", warm+n), ms(took), 300, "ms"),
			absolute("B17", "sessions that this start has loaded", float64(loaded), 0, "sessions"))
		return err
	})
	return rows, err
}

func perThousand(bytes int64, sessions int) float64 {
	return float64(bytes) / (1 << 20) / float64(sessions) * 1000
}

// weight is what this process has in use.
type weight struct {
	heap       int64
	goroutines int
}

// weighSelf lets the process rest, and weighs it several times: the least is what it cannot do without.
func weighSelf(ctx context.Context) (least weight, err error) {
	for i := range weighings {
		if err := rest(ctx, logRests); err != nil {
			return least, err
		}
		runtime.GC()
		runtime.GC() // pools survive one
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		w := weight{int64(m.HeapAlloc), runtime.NumGoroutine()} //nolint:gosec // bytes of a heap
		if i == 0 {
			least = w
		}
		least = weight{min(least.heap, w.heap), min(least.goroutines, w.goroutines)}
	}
	return least, nil
}

func rest(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// crowd is many sessions.
type crowd struct {
	r        *rig
	bus      *journal.Journal
	begun    int
	asked    atomic.Int64
	running  atomic.Int64
	released chan struct{}
}

func newCrowd(ctx context.Context, r *rig) (*crowd, error) {
	c := &crowd{r: r, released: make(chan struct{})}
	b, err := r.connect(ctx, "runner")
	if err != nil {
		return nil, err
	}
	args := json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}}}`)
	r.stops = append(r.stops, background(b, func(ctx context.Context) error {
		return engine.Serve(ctx, b, engine.Config{
			Kind: subject.Runner, Service: "bench-crowd", Logger: quiet, DrainTimeout: 100 * time.Millisecond,
			Pools: []contract.Pool{{Name: contract.DefaultPool, Slots: directory.DefaultOpenSessions}},
			Offer: engine.Offer{Tools: []tool.Spec{
				{Name: askTool, Description: "needs approval", Risk: tool.RiskHigh, Args: args},
				{Name: holdTool, Description: "runs until it is released", Args: args},
			}},
			Work: func(ctx context.Context, _ contract.Request, _ func(string)) contract.Answer {
				c.running.Add(1)
				select {
				case <-c.released:
				case <-ctx.Done():
				}
				res := tool.OK(nil)
				return contract.Answer{State: contract.Finished, Result: &res}
			},
		})
	}))
	if c.bus, err = r.connect(ctx, "talker"); err != nil {
		return nil, err
	}
	r.stops = append(r.stops, c.bus.Close)
	requested := subject.Ref{Agent: "main", Session: "*"}.Live("ui", "tool_call_request")
	if _, err := c.bus.Conn().Subscribe(requested, func(*nats.Msg) { c.asked.Add(1) }); err != nil {
		return nil, err
	}
	return c, c.until(ctx, "the tools are offered", func() bool {
		_, ok := r.core.Directory().Lookup(holdTool)
		return ok
	})
}

// until waits for a condition.
func (c *crowd) until(ctx context.Context, what string, is func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for !is() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting until %s: %w; core: %v", what, ctx.Err(), c.r.core.Counters())
		case <-time.After(time.Millisecond):
		}
	}
	return nil
}

// begin sends an input to each of n more sessions, whose turns call the tool. done is how many have got as far as that.
func (c *crowd) begin(ctx context.Context, name string, n int, done *atomic.Int64) error {
	body, err := json.Marshal(event.Input{Text: callOf + name})
	if err != nil {
		return err
	}
	first := done.Load()
	for i := range n {
		ref := subject.Ref{Agent: "main", Session: subject.Session(fmt.Sprintf("crowd-%d", c.begun))}
		c.begun++
		if _, err := c.bus.PublishCause(ctx, ref, subject.Input, "bench", "", body); err != nil {
			return err
		}
		err := c.until(ctx, "turns go on", func() bool { return int64(i)-(done.Load()-first) < inFlight })
		if err != nil {
			return err
		}
	}
	return c.until(ctx, "all turns have called "+name, func() bool { return done.Load()-first == int64(n) })
}

// wait makes n more sessions wait for a person.
func (c *crowd) wait(ctx context.Context, n int) error {
	if err := c.begin(ctx, askTool, n, &c.asked); err != nil {
		return err
	}
	return c.until(ctx, "no session is open", func() bool { return c.r.core.Counters()["open_sessions"] == 0 })
}

// hold weighs the process while a tool runs in each of n more sessions.
func (c *crowd) hold(ctx context.Context, n int) (weight, error) {
	if err := c.begin(ctx, holdTool, n, &c.running); err != nil {
		return weight{}, err
	}
	w, err := weighSelf(ctx)
	if err != nil {
		return w, err
	}
	close(c.released)
	return w, c.until(ctx, "all turns have ended", func() bool { return c.r.core.Counters()["open_sessions"] == 0 })
}

// restart ends the core, and returns how long another takes until it is ready, and how many of the sessions it has loaded
// once it has compared its view with the log.
func (r *rig) restart(ctx context.Context, sessions int) (took time.Duration, loaded int64, err error) {
	r.stopCore()
	if err := r.store.Close(); err != nil {
		return 0, 0, err
	}
	begin := time.Now()
	if err := r.startCore(ctx); err != nil {
		return 0, 0, err
	}
	took = time.Since(begin)
	err = (&crowd{r: r}).until(ctx, "the view is compared", func() bool {
		v := r.core.Status(ctx).View
		return v.State == coreapi.ViewComplete && v.Sessions == sessions
	})
	return took, r.core.Counters()["sessions_loaded"], err
}
