package bus

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/subject"
)

// Beacon is what a core says about once a second: to those who store inputs, how much
// waits, and whether the log can store; to other cores, what its sessions wait for.
type Beacon struct {
	Instance subject.Instance `json:"instance"`
	Fold     int              `json:"fold,omitempty"`   // the newest version of commits that this core can read
	Backlog  uint64           `json:"backlog"`          // causes in the log that are not done
	Parked   uint64           `json:"parked,omitempty"` // of these, what this core has handed back for a newer core
	Limit    int              `json:"limit"`            // of the backlog, beyond which inputs are refused; 0: none, or the backlog is not known
	Storage  *StorageFault    `json:"storage,omitempty"`
	Waiting  []Waiting        `json:"waiting,omitempty"` // at most MaxWaiting, the largest first
}

// Waiting is how many of a core's sessions wait for a free slot at an executor that
// offers Name: a tool, or a provider, empty if any will do.
type Waiting struct {
	Kind     subject.ExecutorKind `json:"kind"`
	Name     string               `json:"name,omitempty"`
	Sessions int                  `json:"sessions"`
}

// MaxWaiting is the longest list of a beacon.
const MaxWaiting = 32

// The times of beacons.
const (
	BeaconEvery = time.Second
	beaconAge   = 4 * time.Second // an older one says nothing any more
	maxBeacons  = 64              // cores that are heard at once
)

// PublishBeacon tells everyone who listens.
func (b *Bus) PublishBeacon(ctx context.Context, is Beacon) error {
	is.Instance = b.cfg.Instance
	body, err := json.Marshal(is)
	if err != nil {
		return err
	}
	return b.Publish(ctx, subject.Beacon(is.Instance), nil, body)
}

// beacons are the latest ones, by core.
type beacons struct {
	once   sync.Once
	mu     sync.Mutex
	of     map[subject.Instance]heard
	latest heard
	follow func([]Beacon)
}

type heard struct {
	Beacon
	at time.Time
}

func (h heard) fresh() bool { return time.Since(h.at) < beaconAge }

// listen begins to listen, once. Without the right to do so nothing is heard, and
// nothing is refused.
func (s *beacons) listen(b *Bus) {
	s.once.Do(func() {
		s.of = map[subject.Instance]heard{}
		if _, err := b.ctl.nc.Subscribe(subject.AllBeacons, s.hear); err != nil {
			b.log.Debug("listening to the beacons of cores", "error", err)
		}
	})
}

func (s *beacons) hear(m *nats.Msg) {
	h := heard{at: time.Now()}
	i, err := subject.ParseBeacon(m.Subject)
	if err != nil || json.Unmarshal(m.Data, &h.Beacon) != nil {
		return
	}
	h.Instance = i
	if follow, all := s.note(h); follow != nil {
		follow(all)
	}
}

// note keeps a beacon, forgets old ones, and returns whom to tell what.
func (s *beacons) note(h heard) (follow func([]Beacon), all []Beacon) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, old := range s.of {
		if !old.fresh() {
			delete(s.of, i)
		}
	}
	if _, known := s.of[h.Instance]; known || len(s.of) < maxBeacons {
		s.of[h.Instance], s.latest = h, h
	}
	if s.follow != nil {
		for _, h := range s.of {
			if time.Since(h.at) < 2*BeaconEvery { // a core that missed one may be dead
				all = append(all, h.Beacon)
			}
		}
	}
	return s.follow, all
}

// Overload is why no input is taken now: too many wait (code overloaded). It is nil if
// inputs are taken, or nobody knows. The first call subscribes to the cores' beacons.
func (b *Bus) Overload() error { return b.beacons.overload(b) }

// overload does not count what is parked: it would keep inputs from being taken until
// a newer core is there.
func (s *beacons) overload(b *Bus) error {
	s.listen(b)
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.latest // all cores share one backlog
	if !h.fresh() || h.Limit <= 0 {
		return nil
	}
	waiting := h.Backlog
	for _, o := range s.of {
		if o.fresh() {
			waiting -= min(waiting, o.Parked)
		}
	}
	if waiting < uint64(h.Limit) {
		return nil
	}
	return Errorf(CodeOverloaded, "overloaded: %d inputs wait, the limit is %d (limits.backlog of core); send it again later", waiting, h.Limit)
}

// FollowBeacons calls f with the latest beacons of all cores that have missed none, its
// own included, each time one is heard. f must return soon. Only the latest f is called.
func (b *Bus) FollowBeacons(f func([]Beacon)) {
	b.beacons.mu.Lock()
	b.beacons.follow = f
	b.beacons.mu.Unlock()
	b.beacons.listen(b)
}

func (s *beacons) storageFault(b *Bus) *StorageFault {
	s.listen(b)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.of {
		if h.Storage != nil && h.fresh() {
			return h.Storage
		}
	}
	return nil
}

// admit refuses an input that could not be stored, or would wait too long.
func (b *Bus) admit(subj string) error {
	if f := b.StorageFault(); f != nil {
		return fmt.Errorf("storing on %s: %w: %w", subj, ErrRefused, f)
	}
	return b.Overload()
}
