package dispatch

import (
	"math"
	"sync"
	"time"

	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/subject"
)

// Use holds the statistics of one plugin at one point since this core started.
type Use struct {
	Asked, Failed int64
	P50, P99      time.Duration // of its answers and failures; within 10 %
	LastError     string
	LastFailed    time.Time
}

type stats struct {
	mu   sync.Mutex
	uses map[key]*use
}

type key struct {
	point  hook.Point
	plugin subject.Plugin
}

type use struct {
	Use
	buckets [steps]int64
}

// The buckets grow by a fifth each, from a microsecond to beyond a minute.
const (
	steps  = 100
	growth = 1.2
)

func bucket(d time.Duration) int {
	us := float64(d) / float64(time.Microsecond)
	if us <= 1 {
		return 0
	}
	return min(int(math.Log(us)/math.Log(growth)), steps-1)
}

// middle is the geometric mean of a bucket's bounds.
func middle(b int) time.Duration {
	return time.Duration(math.Pow(growth, float64(b)+0.5) * float64(time.Microsecond))
}

func (s *stats) record(p hook.Point, by subject.Plugin, took time.Duration, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.uses == nil {
		s.uses = map[key]*use{}
	}
	u := s.uses[key{p, by}]
	if u == nil {
		u = &use{}
		s.uses[key{p, by}] = u
	}
	u.Asked++
	u.buckets[bucket(took)]++
	if err != nil {
		u.Failed++
		u.LastError, u.LastFailed = err.Error(), time.Now()
	}
}

// Use returns the statistics of the plugin at the point.
func (e *Engine) Use(p hook.Point, by subject.Plugin) Use {
	e.stats.mu.Lock()
	defer e.stats.mu.Unlock()
	u := e.stats.uses[key{p, by}]
	if u == nil {
		return Use{}
	}
	out := u.Use
	out.P50, out.P99 = u.quantile(0.5), u.quantile(0.99)
	return out
}

func (u *use) quantile(q float64) time.Duration {
	rank := int64(math.Ceil(q * float64(u.Asked)))
	for b, n := range u.buckets {
		if rank -= n; rank <= 0 {
			return middle(b)
		}
	}
	return middle(steps - 1)
}

// Forget drops the statistics of plugins that are no longer registered.
func (e *Engine) Forget(known func(subject.Plugin) bool) {
	e.stats.mu.Lock()
	defer e.stats.mu.Unlock()
	for k := range e.stats.uses {
		if !known(k.plugin) {
			delete(e.stats.uses, k)
		}
	}
}
