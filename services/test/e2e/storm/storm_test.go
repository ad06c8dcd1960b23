package storm_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	. "skandha.dev/services/test/e2e/e2etest"
	"skandha.dev/services/test/redistest"
)

// deployment is two cores, executors as configured, and one of each other service. The
// bus syncs only periodically: killing a process loses no unsynced data, and a sync on
// a shared disk may take seconds.
func deployment(t *testing.T, o Options) *System {
	t.Helper()
	redistest.Need(t)
	o.Whole, o.Relaxed, o.Retain, o.Cores, o.Drain = true, true, true, 2, 200*time.Millisecond
	s := Start(t, o)
	s.AwaitCores(2)
	s.AwaitExecutors(len(s.Providers) + len(s.Runners))
	Eventually(t, "the plugin's tools are offered", func() bool {
		list, err := s.Tools()
		if err != nil {
			return false
		}
		n := 0
		for _, tool := range list {
			if tool.Spec.Name == ToolOnce || tool.Spec.Name == ToolAgain {
				n++
			}
		}
		return n == 2
	})
	return s
}

// Whatever is killed or paused, however often: every acknowledged input ends once and
// with a true result, every call has one result, no effect happens twice, and no
// client sees an event twice. Turns go on during the storm.
func TestStorm(t *testing.T) {
	size, r := scaleOf(t), seeded(t)
	s := deployment(t, Options{Providers: 2, Runners: 2})
	l := startLoad(t, s, r, 12)
	k := &killer{t: t, procs: s.Procs(), r: rand.New(rand.NewPCG(r.Uint64(), 2)), locks: map[*Proc]*sync.Mutex{}}

	calm, each := 5*time.Second, 1
	if size.long {
		calm, each = 20*time.Second, 3
	}
	ended := func(n int) { // inputs since now
		var from int
		s.Tail.See(func(l *Log) { from = len(l.Terminals) })
		s.Tail.Await(t, fmt.Sprintf("%d inputs end", n), func(l *Log) bool { return len(l.Terminals) >= from+n })
	}
	ended(40) // every client has begun
	steady := window{from: time.Now()}
	time.Sleep(calm)
	steady.to = time.Now()

	// One fault at a time.
	l.ahead.Store(1)
	ended(40) // the backlog is gone
	kills := map[Kind][]time.Time{}
	for range each {
		for _, p := range k.oneOfEach() {
			open := time.Now()
			kills[p.Role.Kind] = append(kills[p.Role.Kind], open)
			k.kill(p)
			awaitEnds(t, s, open)
		}
	}

	// And all of them.
	l.ahead.Store(3)
	storm := window{from: time.Now()}
	var before int
	s.Tail.See(func(l *Log) { before = len(l.Terminals) })
	k.storm(size.time, func() (enough bool) {
		s.Tail.See(func(l *Log) { enough = size.turns > 0 && len(l.Terminals) >= before+size.turns })
		return enough
	})
	storm.to = time.Now()
	t.Logf("killed and paused: %v", k.done)
	began := time.Now()
	l.stop()
	t.Logf("the clients saw the end of all their inputs %v after the storm",
		time.Since(began).Round(10*time.Millisecond))

	log := judge(t, s)
	l.check(log)
	ends := endsOf(log)
	n, usual := steady.rate(ends)
	t.Logf("steady: %d inputs ended, %.1f a second", n, usual)
	for kind, at := range kills {
		t.Logf("%-10s killed: its turns had ended after %s", kind, quantiles(recovery(ends, at)))
	}
	n, stormy := storm.rate(ends)
	t.Logf("storm: %d inputs ended in %v, %.1f a second, %.0f %% of steady",
		n, storm.to.Sub(storm.from).Round(time.Second), stormy, 100*stormy/usual)
	if n == 0 {
		t.Error("no input ended while it stormed")
	}
}

// awaitEnds waits until every input that was stored before has ended. It polls slowly:
// each look reads the whole log.
func awaitEnds(t *testing.T, s *System, before time.Time) {
	t.Helper()
	for late := time.Now().Add(Patience); time.Now().Before(late); time.Sleep(100 * time.Millisecond) {
		done := false
		s.Tail.See(func(l *Log) {
			read := len(l.Entries) > 0 && l.Entries[len(l.Entries)-1].Time.After(before)
			done = read && !slices.ContainsFunc(l.Open(), func(e Entry) bool { return e.Time.Before(before) })
		})
		if done {
			return
		}
	}
	t.Fatalf("what was stored before %v has not ended within %v", before.Format(time.TimeOnly), Patience)
}

// recovery is how long after each kill the last input had ended that was open then.
func recovery(ends []end, kills []time.Time) (out []time.Duration) {
	for _, at := range kills {
		var last time.Duration
		for _, e := range ends {
			if e.said.Before(at) && e.at.After(at) {
				last = max(last, e.at.Sub(at))
			}
		}
		out = append(out, last)
	}
	return out
}

// killer kills and pauses processes; a killed process is restarted at once.
type killer struct {
	t     *testing.T
	procs []*Proc
	r     *rand.Rand
	mu    sync.Mutex
	locks map[*Proc]*sync.Mutex // a process is killed or paused, not both
	done  map[string]int
}

func (k *killer) lock(p *Proc) func() {
	k.mu.Lock()
	l := k.locks[p]
	if l == nil {
		l = &sync.Mutex{}
		k.locks[p] = l
	}
	k.mu.Unlock()
	l.Lock()
	return l.Unlock
}

func (k *killer) count(what string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.done == nil {
		k.done = map[string]int{}
	}
	k.done[what]++
}

func (k *killer) kill(p *Proc) {
	defer k.lock(p)()
	k.count(string(p.Role.Kind))
	p.Kill()
	p.Start()
}

func (k *killer) pause(p *Proc, d time.Duration) {
	defer k.lock(p)()
	k.count(string(p.Role.Kind) + " (paused)")
	p.Stall()
	time.Sleep(d)
	p.Resume()
}

// oneOfEach is a process of each kind, in any order.
func (k *killer) oneOfEach() (out []*Proc) {
	seen := map[Kind]bool{}
	for _, i := range k.r.Perm(len(k.procs)) {
		if p := k.procs[i]; !seen[p.Role.Kind] {
			seen[p.Role.Kind] = true
			out = append(out, p)
		}
	}
	return out
}

// storm kills a process every 50 to 500 ms, and pauses one sometimes, until enough is
// true or atMost has passed.
func (k *killer) storm(atMost time.Duration, enough func() bool) {
	var paused sync.WaitGroup
	defer paused.Wait()
	for until := time.Now().Add(atMost); time.Now().Before(until) && !enough(); {
		time.Sleep(time.Duration(50+k.r.IntN(450)) * time.Millisecond)
		p := k.procs[k.r.IntN(len(k.procs))]
		if k.r.IntN(8) == 0 {
			d := time.Duration(100+k.r.IntN(900)) * time.Millisecond
			paused.Go(func() { k.pause(p, d) })
			continue
		}
		k.kill(p)
	}
}
