package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/subject"
)

// Beacon is what a core publishes about once a second. Clients that store inputs learn how
// many wait and whether the log can store; other cores learn what its sessions wait for.
type Beacon struct {
	Instance subject.Instance `json:"instance"`
	Fold     int              `json:"fold,omitempty"`   // the newest version of commits that this core can read
	Backlog  uint64           `json:"backlog"`          // causes in the log that are not done
	Parked   uint64           `json:"parked,omitempty"` // of these, how many this core has returned for a newer core
	// from this backlog on, inputs are refused; 0: no limit, or the backlog is unknown
	Limit   int           `json:"limit"`
	Log     *LogUse       `json:"log,omitempty"` // nil: the log has no limit, or its size is unknown
	Storage *StorageFault `json:"storage,omitempty"`
	Waiting []Waiting     `json:"waiting,omitempty"` // at most MaxWaiting, the largest first
}

// LogUse is how much of the log's limit is used, in bytes.
type LogUse struct {
	Bytes uint64 `json:"bytes"`
	Most  uint64 `json:"most"` // above 0
}

// Reserved reports whether inputs are refused, so that what runs can go on: the last tenth of the log is for commits.
func (u *LogUse) Reserved() bool { return u != nil && u.Bytes >= u.Most-u.Most/10 }

// Waiting is how many of a core's sessions wait for a free slot at an executor that
// offers Name: a tool, or a provider, empty if any will do.
type Waiting struct {
	Kind     subject.ExecutorKind `json:"kind"`
	Name     string               `json:"name,omitempty"`
	Sessions int                  `json:"sessions"`
}

// MaxWaiting is the maximum length of Beacon.Waiting.
const MaxWaiting = 32

// The times of beacons.
const (
	BeaconEvery = time.Second
	beaconAge   = 4 * time.Second // an older one is ignored
	maxBeacons  = 64              // cores that are heard at once
)

// PublishBeacon publishes a beacon.
func (b *Bus) PublishBeacon(ctx context.Context, is Beacon) error {
	is.Instance = b.cfg.Instance
	body, err := json.Marshal(is)
	if err != nil {
		return err
	}
	return b.Publish(ctx, subject.Beacon(is.Instance), nil, body)
}

// The limits of a valid beacon. A forged or broken core must not stop all inputs, or displace
// the sessions of other cores, with a beacon that no core sends.
const (
	maxBeaconCount  = 1 << 48 // of causes or sessions
	maxBeaconBytes  = 1 << 60 // of the log
	maxBeaconText   = 4096    // bytes of a reason
	maxBeaconName   = 256     // bytes of the name of a tool or a provider
	maxBeaconAhead  = 24 * time.Hour
	beaconComplaint = time.Minute // between two log lines about invalid ones
)

// Validate reports the first invalid field.
func (is Beacon) Validate() error {
	switch {
	case !subject.Valid(is.Instance):
		return fmt.Errorf("instance: %q is not a valid id", clipped(string(is.Instance)))
	case is.Backlog > maxBeaconCount:
		return fmt.Errorf("backlog: is %d", is.Backlog)
	case is.Parked > maxBeaconCount:
		return fmt.Errorf("parked: is %d", is.Parked)
	case is.Limit < 0 || int64(is.Limit) > maxBeaconCount:
		return fmt.Errorf("limit: is %d", is.Limit)
	case is.Log != nil && (is.Log.Most == 0 || is.Log.Most > maxBeaconBytes || is.Log.Bytes > maxBeaconBytes):
		return fmt.Errorf("log: has %d bytes of %d", is.Log.Bytes, is.Log.Most)
	case len(is.Waiting) > MaxWaiting:
		return fmt.Errorf("waiting: has %d entries, at most %d", len(is.Waiting), MaxWaiting)
	}
	if err := is.Storage.validate(); err != nil {
		return fmt.Errorf("storage.%w", err)
	}
	for i, w := range is.Waiting {
		if err := w.validate(); err != nil {
			return fmt.Errorf("waiting[%d].%w", i, err)
		}
	}
	return nil
}

func (f *StorageFault) validate() error {
	switch {
	case f == nil:
		return nil
	case strings.TrimSpace(f.Reason) == "":
		return errors.New("reason: is empty")
	case len(f.Reason) > maxBeaconText:
		return fmt.Errorf("reason: has %d bytes, at most %d", len(f.Reason), maxBeaconText)
	case f.Since.After(time.Now().Add(maxBeaconAhead)):
		return fmt.Errorf("since: %s is in the future", f.Since.Format(time.RFC3339))
	}
	return nil
}

func (w Waiting) validate() error {
	switch {
	case w.Kind != subject.Runner && w.Kind != subject.Provider:
		return fmt.Errorf("unknown kind %q", clipped(string(w.Kind)))
	case len(w.Name) > maxBeaconName:
		return fmt.Errorf("name: has %d bytes, at most %d", len(w.Name), maxBeaconName)
	case w.Sessions < 0 || int64(w.Sessions) > maxBeaconCount:
		return fmt.Errorf("sessions: is %d", w.Sessions)
	}
	return nil
}

// clipped shortens text from outside for a log line.
func clipped(s string) string { return s[:min(len(s), subject.MaxIDLen)] }

// parseBeacon reads a beacon. Its subject names the sender.
func parseBeacon(m *nats.Msg) (is Beacon, err error) {
	from, err := subject.ParseBeacon(m.Subject)
	if err != nil {
		return is, err
	}
	if err := json.Unmarshal(m.Data, &is); err != nil {
		return is, err
	}
	if is.Instance != from {
		return is, fmt.Errorf("instance: is %q", clipped(string(is.Instance)))
	}
	if err := is.Validate(); err != nil {
		return is, err
	}
	if is.Storage != nil && is.Storage.Since.IsZero() {
		is.Storage.Since = time.Now().UTC()
	}
	return is, nil
}

// beacons are the latest ones, by core.
type beacons struct {
	once   sync.Once
	mu     sync.Mutex
	of     map[subject.Instance]heard
	latest heard
	follow func([]Beacon)
	// When a beacon that was dropped was last logged.
	complained time.Time
}

type heard struct {
	Beacon
	at time.Time
}

func (h heard) fresh() bool { return time.Since(h.at) < beaconAge }

// listen subscribes to the beacons, once. Without the permission, no beacons are received and
// no inputs refused.
func (s *beacons) listen(b *Bus) {
	s.once.Do(func() {
		s.of = map[subject.Instance]heard{}
		if _, err := b.Subscribe(subject.AllBeacons, "", func(m *nats.Msg) { s.hear(b, m) }); err != nil {
			b.log.Debug("subscribing to the beacons of cores failed", "error", err)
			return
		}
		go b.watchCores()
	})
}

// HearBeacons subscribes to the beacons of cores. A process that has heard some, and then hears none, connects to
// another server, if there is one: its own may be cut off from the others.
func (b *Bus) HearBeacons() { b.beacons.listen(b) }

// The times of the watch over beacons.
const (
	coresSilent = 6 * time.Second // without a beacon: too long for a core that restarts its connection
	coresPause  = time.Minute     // the longest between two attempts to find a core
)

func (b *Bus) watchCores() {
	tick := time.NewTicker(BeaconEvery)
	defer tick.Stop()
	pause, tried := coresSilent, time.Time{}
	for {
		select {
		case <-b.closed:
			return
		case <-tick.C:
		}
		b.beacons.mu.Lock()
		heard := b.beacons.latest.at
		b.beacons.mu.Unlock()
		switch {
		case heard.IsZero():
		case time.Since(heard) < coresSilent:
			pause = coresSilent
		case b.Connected() && time.Since(tried) > pause:
			pause, tried = min(2*pause, coresPause), time.Now()
			b.tryElsewhere("no core can be heard")
		}
	}
}

func (s *beacons) hear(b *Bus, m *nats.Msg) {
	is, err := parseBeacon(m)
	if err != nil {
		s.complain(b, m.Subject, err)
		return
	}
	if follow, all := s.note(heard{is, time.Now()}); follow != nil {
		follow(all)
	}
}

// complain logs a beacon that is dropped, but not each of a flood.
func (s *beacons) complain(b *Bus, subj string, err error) {
	s.mu.Lock()
	say := time.Since(s.complained) > beaconComplaint
	if say {
		s.complained = time.Now()
	}
	s.mu.Unlock()
	if say {
		b.log.Warn("dropping an invalid beacon", "subject", subj, "error", err)
	}
}

// note stores a beacon, drops old ones, and returns the functions to call with the latest.
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

// Overload returns why inputs are refused now (code overloaded): too many wait, or the log is nearly full. It returns nil
// if inputs are accepted, or if no core has reported. The first call subscribes to
// the cores' beacons.
func (b *Bus) Overload() error { return b.beacons.overload(b) }

// overload does not count parked causes: they would block all inputs until a newer core
// is running.
func (s *beacons) overload(b *Bus) error {
	s.listen(b)
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.latest // all cores share one log and one backlog
	if h.fresh() && h.Log.Reserved() {
		return Errorf(CodeOverloaded, "the log is nearly full, with %d of %d MiB, and the rest is kept for what runs; "+
			"raise streams.max_bytes of core, then send it again", h.Log.Bytes>>20, h.Log.Most>>20)
	}
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
	return Errorf(CodeOverloaded,
		"overloaded: %d inputs wait, the limit is %d (limits.backlog of core); send it again later",
		waiting, h.Limit)
}

// FollowBeacons calls f each time a beacon is received, with the latest beacons of all cores
// that have missed none, including that of this process. f must return soon. Only the latest
// f is called.
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

// admit rejects an input that could not be stored, or would wait too long.
func (b *Bus) admit(subj string) error {
	if f := b.StorageFault(); f != nil {
		return fmt.Errorf("storing on %s: %w: %w", subj, ErrRefused, f)
	}
	return b.Overload()
}
