package capture

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nuid"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/bounds"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/jsondoc"
	"skandha.dev/services/internal/senses"
	"skandha.dev/services/listener/contract"
)

// MaxWaiting is how many perceptions wait for the bus.
const MaxWaiting = 8

const retryPause = 500 * time.Millisecond

// Stats counts perceptions.
type Stats struct {
	Perceived  atomic.Int64 // became inputs
	Full       atomic.Int64 // dropped because too many waited
	Limited    atomic.Int64 // dropped by every
	Nothing    atomic.Int64 // dropped because there was nothing in them, e.g. no words
	Off        atomic.Int64 // dropped because the listener was switched off before they were complete
	Invalid    atomic.Int64 // inputs that the log refuses as invalid
	Unstored   atomic.Int64 // recordings that could not be stored
	Deleted    atomic.Int64 // recordings that were deleted
	Restarts   atomic.Int64 // of sources
	Unreadable atomic.Int64 // frames that were dropped: damaged, too large, or too many
}

// Counters returns the counts by metric name, after a prefix.
func (s *Stats) Counters(prefix string) map[string]int64 {
	return map[string]int64{
		prefix + "_perceived": s.Perceived.Load(), prefix + "_dropped_full": s.Full.Load(),
		prefix + "_dropped_rate": s.Limited.Load(), prefix + "_dropped_empty": s.Nothing.Load(),
		prefix + "_dropped_off":     s.Off.Load(),
		prefix + "_dropped_invalid": s.Invalid.Load(), prefix + "_recordings_failed": s.Unstored.Load(),
		prefix + "_recordings_deleted": s.Deleted.Load(), prefix + "_restarts": s.Restarts.Load(),
		prefix + "_frames_dropped": s.Unreadable.Load(),
	}
}

// Deps are a recorder's dependencies.
type Deps struct {
	Bus    *journal.Journal
	Logger *slog.Logger     // default slog.Default
	Now    func() time.Time // default time.Now
	Stats  *Stats           // may be nil
}

// Sense is what a recorder records with.
type Sense struct {
	Media string // senses.MediaCamera or senses.MediaMicrophone; also the kind of the origin
	// Read reads the source until it ends, fails, or ctx ends. It calls [Recorder.Receiving] when
	// something comes, and [Recorder.Perceive].
	Read func(ctx context.Context) error
	// Ends: a source that ends without an error is not read again.
	Ends bool
	// Idle is the state of a source that is read and from which nothing has come yet.
	Idle contract.Health
	// Prepare completes a perception before it is stored, and reports whether there is something in
	// it. It fails only when ctx ends. May be nil.
	Prepare func(ctx context.Context, p *Perception) (bool, error)
	// FirstPause is the pause after the first failure; default 1 s.
	FirstPause time.Duration
	// Grace is how long the source is read while nobody could switch it off, because the bus cannot be
	// reached; default 10 s. A source that [Sense.Ends] is a recording already, and is read on.
	Grace time.Duration
}

// Recorder belongs to one listener.
type Recorder struct {
	name  subject.Writer
	cfg   Config
	sense Sense
	text  *jsondoc.Template // nil: none
	bus   *journal.Journal
	log   *slog.Logger
	now   func() time.Time
	stats *Stats

	emitter  contract.Emitter
	inFlight contract.InFlight
	queue    chan *waiting
	mu       sync.Mutex
	consent  consent
	last     time.Time // of the last perception
	reading  bool      // the source is read
	receives bool      // something comes from it
	why      string    // it is not read
	obeyed   position  // what its switch decides, once that is done
	source   contract.Condition
	store    contract.Condition
	kept     keeper
	unfollow func()             // ends following the switch
	quit     context.CancelFunc // ends recording
	end      context.CancelFunc // ends storing
	readers  sync.WaitGroup
	storing  sync.WaitGroup
}

// New returns a recorder for a valid configuration.
func New(name subject.Writer, cfg Config, sense Sense, deps Deps) (*Recorder, error) {
	if deps.Bus == nil {
		return nil, errors.New("deps.Bus is required")
	}
	if deps.Now == nil {
		deps.Now = time.Now
	}
	text, err := jsondoc.ParseTemplate("text_template", cfg.TextTemplate)
	if err != nil {
		return nil, err
	}
	r := &Recorder{
		name: name, cfg: bounds.Filled(cfg), sense: sense, text: text, bus: deps.Bus,
		log: cmp.Or(deps.Logger, slog.Default()).With("listener", string(name)), now: deps.Now,
		stats: cmp.Or(deps.Stats, &Stats{}), queue: make(chan *waiting, MaxWaiting), why: unknown,
		// Until the switch was read it could be switched on.
		obeyed:   position{on: cfg.Start != StartOff},
		unfollow: func() {}, quit: func() {}, end: func() {},
	}
	r.kept = keeper{r: r}
	return r, nil
}

// unknown is why nothing is recorded at first.
const unknown = "waiting for the bus, which knows whether somebody has switched it off"

// Name returns the listener's name.
func (r *Recorder) Name() subject.Writer { return r.name }

// Ref is the session that receives the inputs.
func (r *Recorder) Ref() subject.Ref { return r.cfg.Ref() }

// Stats returns where the recorder counts.
func (r *Recorder) Stats() *Stats { return r.stats }

// Media implements [contract.Sensing].
func (r *Recorder) Media() contract.Media {
	r.mu.Lock()
	defer r.mu.Unlock()
	return contract.Media{
		Kind: r.sense.Media, Agent: r.Ref().Agent,
		On: r.obeyed.on || r.reading, Recording: r.reading && r.receives, Follows: r.obeyed.revision,
	}
}

// Off returns why nothing is recorded; empty while the source is read.
func (r *Recorder) Off() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.reading && r.consent.given:
		return ""
	case r.reading:
		return r.consent.why
	}
	return r.why
}

// Health implements [contract.HealthReporter].
func (r *Recorder) Health() contract.Health {
	return contract.Worse(r.source.Health(), r.store.Health())
}

// Receiving says that the source sends what it should.
func (r *Recorder) Receiving() {
	r.receive(true)
	r.source.Set(contract.StateOK, "")
}

func (r *Recorder) receive(is bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.receives = is
}

// OnStart implements [contract.Listener].
func (r *Recorder) OnStart(ctx context.Context, e contract.Emitter) error {
	if !r.inFlight.Open() {
		return fmt.Errorf("listener %s was already started", r.name)
	}
	r.emitter = e
	ctx = context.WithoutCancel(ctx)
	var record, store context.Context
	record, r.quit = context.WithCancel(ctx)
	store, r.end = context.WithCancel(ctx)
	r.source.Set(contract.StateDegraded, unknown)
	turned := make(chan position, 1)
	watch := senses.FollowSwitch(r.bus, r.name, func(p senses.Position) { r.learn(p, turned) })
	r.unfollow = sync.OnceFunc(watch.Stop)
	r.readers.Go(func() { r.follow(record, watch, turned) })
	r.storing.Go(func() { r.run(store) })
	r.storing.Go(func() { r.kept.run(store) })
	return nil
}

// OnStop implements [contract.Listener]. It ends the source first, and follows the switch until all that
// was perceived is stored.
func (r *Recorder) OnStop(ctx context.Context) error {
	r.quit()
	r.readers.Wait()
	err := r.inFlight.Shut(ctx)
	r.end()
	r.storing.Wait()
	r.unfollow()
	if err != nil {
		return fmt.Errorf("listener %s: %w", r.name, err)
	}
	return nil
}

// Perceive takes a perception, and reports whether it will become an input. It does not wait.
func (r *Recorder) Perceive(p Perception) bool {
	leave, ok := r.inFlight.Enter()
	if !ok {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.consent.given {
		leave()
		r.stats.Off.Add(1)
		return false
	}
	if since := p.At.Sub(r.last); since >= 0 && since < r.cfg.Every {
		leave()
		r.stats.Limited.Add(1)
		return false
	}
	p.ID = cmp.Or(p.ID, nuid.Next())
	w := &waiting{Perception: p, leave: leave, until: r.now()}
	select {
	case r.queue <- w:
		r.last = p.At
		r.consent.await(w)
		return true
	default:
	}
	leave()
	if n := r.stats.Full.Add(1); n == 1 || n%100 == 0 {
		r.log.Warn("perceptions are dropped: too many wait", "waiting", MaxWaiting, "dropped", n)
	}
	return false
}

func pause(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	<-ctx.Done()
}
