package pool

import "time"

// Stats describe a pool.
type Stats struct {
	Warm     int `json:"warm"`     // clean and ready
	Used     int `json:"used"`     // in use
	Starting int `json:"starting"` // not ready yet
	Ending   int `json:"ending"`   // being destroyed
	Waiting  int `json:"waiting"`  // callers without a sandbox
	Max      int `json:"max"`

	Started   int64 `json:"started"`   // since the pool was created, like all below
	Destroyed int64 `json:"destroyed"` //
	Failed    int64 `json:"failed"`    // starts
	Died      int64 `json:"died"`      // warm sandboxes that died
	Gets      int64 `json:"gets"`      //
	Drained   int64 `json:"drained"`   // of those: no warm sandbox was available, or packages were required

	Starts Latency `json:"starts"` // until the interpreter answers

	LastError   string    `json:"last_error,omitempty"` // of a start
	LastErrorAt time.Time `json:"last_error_at,omitzero"`
}

// Latency is how long something took.
type Latency struct {
	Last time.Duration `json:"last"` // nanoseconds, like the others
	Mean time.Duration `json:"mean"` // weighted towards recent ones
	Max  time.Duration `json:"max"`
}

// recent is the inverse weight of the latest duration in the mean.
const recent = 8

func (l *Latency) add(d time.Duration) {
	if l.Mean == 0 {
		l.Mean = d
	}
	l.Last, l.Mean, l.Max = d, l.Mean+(d-l.Mean)/recent, max(l.Max, d)
}

// Stats returns the pool's current figures.
func (p *Pool) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.stats
	s.Warm, s.Used, s.Starting, s.Ending = len(p.warm), len(p.used), p.clean+p.special, p.ending
	s.Waiting, s.Max = len(p.waiters), p.cfg.Max
	return s
}
