package camera

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/bus"
	"skandha.dev/services/internal/senses"
	"skandha.dev/services/listener/capture"
	"skandha.dev/services/listener/contract"
)

// nobodyShares is how a camera of the page is while it sees nothing.
const nobodyShares = "nobody shares a camera with the session on the page now"

const (
	// shareEnds is how long after the last picture the camera counts as shared.
	shareEnds = 5 * time.Second
	// stateEvery is how often the masks are stored again, so that they are not forgotten.
	stateEvery = time.Hour
	stateRetry = time.Second
	stateWait  = 5 * time.Second
)

// readPage reads the pictures that a person's browser sends.
func (l *Listener) readPage(ctx context.Context) error {
	return l.watch(ctx, func(ctx context.Context, put func(picture)) error {
		sub, err := l.bus.Subscribe(l.Ref().Frame(), "", func(m *nats.Msg) {
			if len(m.Data) > senses.MaxFrameBytes {
				l.Stats().Unreadable.Add(1)
				return
			}
			put(picture{m.Data, l.now()})
		})
		if err != nil {
			return bus.TransportError("subscribing to the page's camera", err)
		}
		defer func() { _ = sub.Unsubscribe() }()
		<-ctx.Done()
		return ctx.Err()
	})
}

// Media implements [contract.Sensing]. A camera of the page sees nobody while it is not shared.
func (l *Listener) Media() contract.Media {
	is := l.Recorder.Media()
	is.Recording = is.Recording && l.shared()
	return is
}

// Health implements [contract.HealthReporter].
func (l *Listener) Health() contract.Health {
	h := l.Recorder.Health()
	if h.State == contract.StateOK && l.Off() == "" && !l.shared() {
		h.Reason = nobodyShares
	}
	return h
}

// shared is false for a camera of the page that nobody shares now.
func (l *Listener) shared() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.cfg.Page || !l.came.IsZero() && time.Since(l.came) < shareEnds
}

// state stores for the UI bridges, until ctx ends, what holds for the camera that a person shares: the masks,
// and that the switch of this listener is also that camera's.
func (l *Listener) state(ctx context.Context) {
	var w *senses.Watcher // nil: it was a camera of the page before
	if l.cfg.Page {
		ref := l.Ref()
		w = &senses.Watcher{
			Agent: ref.Agent, Session: ref.Session, Masks: areas(l.cfg.Masks), StartOff: l.cfg.Start == capture.StartOff,
		}
	}
	for ctx.Err() == nil {
		put, cancel := context.WithTimeout(ctx, stateWait)
		err := senses.PutWatcher(put, l.bus, l.name, w)
		cancel()
		wait := stateEvery
		switch {
		case err != nil:
			wait = stateRetry
		case w == nil:
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}
