package storm_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	. "skandha.dev/services/test/e2e/e2etest"
)

// scale is how long the scenarios last.
type scale struct {
	long  bool
	turns int           // of the storm; 0: time counts
	time  time.Duration // of the storm, at most
}

func scaleOf(t *testing.T) scale {
	t.Helper()
	text := os.Getenv("SKANDHA_STORM")
	if text == "" {
		t.Parallel() // the figures of a short run do not matter
		return scale{time: 10 * time.Second}
	}
	if n, err := strconv.Atoi(text); err == nil && n > 0 {
		return scale{long: true, turns: n, time: 15 * time.Minute}
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("SKANDHA_STORM is %q, want a number of turns or a time: %v", text, err)
	}
	return scale{long: true, time: d}
}

func seeded(t *testing.T) *rand.Rand {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("SKANDHA_SEED"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("SKANDHA_SEED is %q, want a number: %v", text, err)
		}
		seed = n
	}
	t.Logf("SKANDHA_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 10))
}

// load is a set of clients that send inputs until they are stopped, each with a few
// inputs open.
type load struct {
	t       *testing.T
	clients []*Client
	ahead   atomic.Int32
	over    chan struct{}
	all     sync.WaitGroup
}

// patience is how long a client waits for an acknowledgement or an end, even in a
// storm.
const patience = 20 * time.Minute

func startLoad(t *testing.T, s *System, r *rand.Rand, sessions int) *load {
	l := &load{t: t, over: make(chan struct{})}
	l.ahead.Store(3)
	for i := range sessions {
		c := s.Client(fmt.Sprintf("s%d", i))
		l.clients = append(l.clients, c)
		own := rand.New(rand.NewPCG(r.Uint64(), 1))
		l.all.Go(func() { l.talk(c, own) })
	}
	return l
}

func (l *load) talk(c *Client, r *rand.Rand) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var open []uint64
	for i := 0; ; i++ {
		select {
		case <-l.over:
			for _, seq := range open {
				if err := c.Ended(ctx, seq); err != nil {
					l.t.Error(err)
				}
			}
			return
		default:
		}
		for len(open) >= int(l.ahead.Load()) {
			if err := c.Ended(ctx, open[0]); err != nil {
				l.t.Error(err)
				return
			}
			open = open[1:]
		}
		seq, err := c.Say(ctx, fmt.Sprintf("in-%d", i), script(r).Text(), r.IntN(4) == 0)
		if err != nil {
			l.t.Error(err)
			return
		}
		open = append(open, seq)
	}
}

// stop waits until the clients have seen the end of all their inputs.
func (l *load) stop() {
	close(l.over)
	l.all.Wait()
}

// check compares what the clients have seen with the log.
func (l *load) check(log *Log) {
	l.t.Helper()
	refused := map[string]int{}
	for _, c := range l.clients {
		c.Refusals(refused)
		for _, bad := range c.Check(log) {
			l.t.Error(bad)
		}
	}
	l.t.Logf("clients sent again because of: %v", refused)
}

// script is what one input asks for: a call or two that take a moment.
func script(r *rand.Rand) Script {
	args := func() Args { return Args{N: r.IntN(100), MS: 20 + r.IntN(60)} }
	s := Script{ThinkMS: 10 + r.IntN(30), Rounds: []Round{{{ID: "once", Tool: ToolOnce, Args: args()}}}}
	switch r.IntN(3) {
	case 0:
		s.Rounds[0] = append(s.Rounds[0], Call{ID: "again", Tool: ToolAgain, Args: args()})
	case 1:
		s.Rounds = append(s.Rounds, Round{{ID: "again", Tool: ToolAgain, Args: args()}})
	}
	return s
}
