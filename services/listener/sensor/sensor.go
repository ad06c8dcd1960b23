package sensor

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/listener/contract"
	"skandha.dev/services/listener/feed"
	"skandha.dev/services/listener/mapping"
)

const retryPause = time.Second

// Deps are a listener's dependencies.
type Deps struct {
	Bus    *journal.Journal
	Logger *slog.Logger     // default slog.Default
	Now    func() time.Time // default time.Now
	Stats  *feed.Stats      // may be nil
}

// source produces readings.
type source interface {
	// run produces readings until ctx ends. An error is the reason why it cannot, for now; it
	// is then run again.
	run(ctx context.Context, s *sink) error
}

// Listener is the listener that looks for itself.
type Listener struct {
	name   subject.Writer
	source source
	feed   *feed.Feed
	sink   *sink
	log    *slog.Logger
	health *contract.Condition
	quit   context.CancelFunc
	ended  sync.WaitGroup
}

var _ contract.HealthReporter = (*Listener)(nil)

// New returns a listener and reads its secrets; an error names the field.
func New(name subject.Writer, cfg Config, deps Deps) (*Listener, error) {
	if _, err := subject.Parse[subject.Writer](string(name)); err != nil {
		return nil, err
	}
	if err := errors.Join(cfg.Validate(), cfg.CheckSecrets()); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	deps.Logger = cmp.Or(deps.Logger, slog.Default())
	if deps.Now == nil {
		deps.Now = time.Now
	}
	deps.Stats = cmp.Or(deps.Stats, &feed.Stats{})
	f, err := feed.New(mapping.Source{Kind: "sensor", Listener: name}, map[string]mapping.Config{string(name): cfg.Config},
		feed.Deps{Bus: deps.Bus, Logger: deps.Logger, Now: deps.Now, Stats: deps.Stats})
	if err != nil {
		return nil, err
	}
	health := &contract.Condition{}
	health.Set(contract.StateDegraded, "not read yet")
	return &Listener{
		name: name, source: cfg.source(string(name)), feed: f, health: health, log: deps.Logger.With("listener", string(name)),
		sink: &sink{
			rule: string(name), feed: f, now: deps.Now, stats: deps.Stats, health: health,
			bucket: deps.Bus.Bucket(journal.BucketListeners), key: "position." + string(name),
		},
		quit: func() {},
	}, nil
}

// source returns the one source that is set.
func (c Config) source(name string) source {
	switch {
	case c.HTTP != nil:
		return &poller{poll: c.HTTP.Poll, read: newHTTPSource(*c.HTTP, name)}
	case c.Command != nil:
		return &poller{poll: c.Command.Poll, read: commandSource{*c.Command, name}.read}
	case c.File != nil:
		return &fileSource{cfg: *c.File}
	case c.Directory != nil:
		return &directorySource{cfg: *c.Directory}
	default:
		return &poller{poll: c.Prometheus.Poll, read: newPrometheusSource(*c.Prometheus)}
	}
}

// Name implements [contract.Listener].
func (l *Listener) Name() subject.Writer { return l.name }

// Health implements [contract.HealthReporter].
func (l *Listener) Health() contract.Health {
	return contract.Worse(l.health.Health(), l.feed.Health())
}

// OnStart implements [contract.Listener].
func (l *Listener) OnStart(ctx context.Context, e contract.Emitter) error {
	if err := l.feed.Start(ctx, e); err != nil {
		return err
	}
	var wait context.Context
	wait, l.quit = context.WithCancel(context.WithoutCancel(ctx))
	l.ended.Go(func() { l.run(wait) })
	return nil
}

// OnStop implements [contract.Listener]. What was not done is read again at the next start, by
// sources that have a position.
func (l *Listener) OnStop(ctx context.Context) error {
	l.quit()
	err := l.feed.Stop(ctx)
	l.ended.Wait()
	return err
}

func (l *Listener) run(ctx context.Context) {
	for ctx.Err() == nil {
		err := l.source.run(ctx, l.sink)
		if ctx.Err() != nil {
			return
		}
		if err != nil && l.health.Set(contract.StateDown, err.Error()) {
			l.log.Warn("the source cannot be read; retrying", "error", err)
		}
		pause(ctx, retryPause)
	}
}

func pause(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	<-ctx.Done()
}
