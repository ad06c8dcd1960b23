package pool

import "time"

// Stats describe a pool.
type Stats struct {
	Warm     int `json:"warm"`     // clean and ready
	Used     int `json:"used"`     // given out
	Starting int `json:"starting"` // not ready yet
	Ending   int `json:"ending"`   // being destroyed
	Waiting  int `json:"waiting"`  // callers without a sandbox
	Max      int `json:"max"`

	Started   int64 `json:"started"`   // since the beginning, as all below
	Destroyed int64 `json:"destroyed"` //
	Failed    int64 `json:"failed"`    // starts
	Died      int64 `json:"died"`      // of the warm ones, by themselves
	Gets      int64 `json:"gets"`      //
	Drained   int64 `json:"drained"`   // of those: no warm sandbox was there, or one with packages was wanted

	Starts Latency `json:"starts"` // until the interpreter answers

	LastError   string    `json:"last_error,omitempty"` // of a start
	LastErrorAt time.Time `json:"last_error_at,omitzero"`
}

// Latency is how long something took.
type Latency struct {
	Last time.Duration `json:"last"` // nanoseconds, as all here
	Mean time.Duration `json:"mean"` // the recent ones weigh more
	Max  time.Duration `json:"max"`
}

// recent is the weight of the last one in the mean: an eighth.
const recent = 8

func (l *Latency) add(d time.Duration) {
	if l.Mean == 0 {
		l.Mean = d
	}
	l.Last, l.Mean, l.Max = d, l.Mean+(d-l.Mean)/recent, max(l.Max, d)
}

// Stats says how the pool does.
func (p *Pool) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.stats
	s.Warm, s.Used, s.Starting, s.Ending = len(p.warm), len(p.used), p.clean+p.special, p.ending
	s.Waiting, s.Max = len(p.waiters), p.cfg.Max
	return s
}
