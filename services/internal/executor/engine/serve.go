package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/executor"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/text"
)

const (
	// atOnce bounds the requests that are handled concurrently. Each running attempt
	// is one of them, and requests to stop them must still be handled.
	atOnce = 1 << 16
	// sweepEvery is the interval of dropping expired results.
	sweepEvery = time.Second
	// lastFlush bounds sending the last messages at shutdown.
	lastFlush = 2 * time.Second
	// settle is the pause after an offer before the next one is received. Offers that
	// change meanwhile share one announcement, which may be large.
	settle = 100 * time.Millisecond
)

// Serve runs an executor instance under the bus's instance id until ctx ends, and
// then drains: it announces that, refuses waiting and new attempts, and lets running
// ones finish. It returns when all results are released, or nobody has asked for them for a while: a
// release may be lost with the bus. After Config.DrainTimeout it
// stops the attempts that are still running and returns. It returns nil if it ended
// because ctx did.
//
// A process serves one instance per kind. The instance's id is new at each start of
// the process; otherwise ids of attempts could not be forgotten.
func Serve(ctx context.Context, b *journal.Journal, cfg Config) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	s, err := newServer(b, cfg.withDefaults())
	if err != nil {
		return err
	}
	return s.serve(ctx)
}

type server struct {
	bus       *journal.Journal
	cfg       Config
	attempts  *Attempts
	announcer *announcer
	decoder   executor.Decoder
}

func newServer(b *journal.Journal, cfg Config) (*server, error) {
	cfg.Logger = cfg.Logger.With("executor", string(b.Instance()))
	t := newAttempts(cfg, b.Instance())
	subj := subject.Announce(cfg.Kind, b.Instance())
	a, err := newAnnouncer(cfg, b.Instance(), t.Pools, func(msg []byte) error {
		return b.Publish(context.Background(), subj, nil, msg)
	})
	if err != nil {
		return nil, err
	}
	t.changed = a.changed
	return &server{bus: b, cfg: cfg, attempts: t, announcer: a}, nil
}

func (s *server) serve(ctx context.Context) error {
	inst := s.bus.Instance()
	s.bus.HearBeacons()
	r, err := s.bus.Respond(subject.Executor(s.cfg.Kind, inst), "", string(inst), s.handle, bus.Concurrency(atOnce))
	if err != nil {
		return fmt.Errorf("serving as %s: %w", s.cfg.Service, err)
	}
	defer r.Stop()
	discover, err := s.bus.Subscribe(subject.Discover(s.cfg.Kind), "", func(*nats.Msg) { s.announcer.announce(false) })
	if err != nil {
		return fmt.Errorf("listening to %s: %w", subject.Discover(s.cfg.Kind), err)
	}
	defer func() { _ = discover.Unsubscribe() }()

	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() { s.announcer.run(background) })
	wg.Go(func() { s.sweep(background) })
	defer wg.Wait()
	defer stop()

	s.cfg.Logger.Info("executor is ready", "kind", string(s.cfg.Kind), "tools", len(s.cfg.Tools),
		"providers", len(s.cfg.Providers))
	updates := s.cfg.Updates
	var settled <-chan time.Time
	for {
		select {
		case <-s.bus.Closed():
			s.attempts.StopAll()
			return fmt.Errorf("serving as %s: the connection to the bus was closed", s.cfg.Service)
		case o, ok := <-updates:
			updates = nil
			if ok {
				s.update(o)
				settled = time.After(settle)
			}
		case <-settled:
			updates, settled = s.cfg.Updates, nil
		case <-ctx.Done():
			s.drain()
			return nil
		}
	}
}

// update replaces the offer. Requests for anything that it no longer contains are refused.
func (s *server) update(o Offer) {
	pools := make(map[string]bool, len(s.cfg.Pools))
	for _, p := range s.cfg.Pools {
		pools[p.Name] = true
	}
	err := o.validate(s.cfg.Kind, pools)
	if err == nil {
		err = s.announcer.setOffer(o, func() { s.attempts.setOffer(o) })
	}
	if err != nil {
		s.cfg.Logger.Error("ignoring an invalid offer", "error", err)
		return
	}
	s.announcer.announce(false)
}

func (s *server) drain() {
	s.cfg.Logger.Info("executor is draining", "at_most", s.cfg.DrainTimeout)
	empty := s.attempts.Drain()
	s.announcer.drain()
	if !s.emptied(empty) {
		s.attempts.StopAll()
	}
	s.announcer.leave()
	ctx, cancel := context.WithTimeout(context.Background(), lastFlush)
	defer cancel()
	if err := s.bus.Conn().FlushWithContext(ctx); err != nil {
		s.cfg.Logger.Debug("could not flush the last messages", "error", err)
	}
}

// emptied waits until the drain is complete. It reports false if that takes too long, or the bus is gone.
func (s *server) emptied(empty <-chan struct{}) bool {
	limit, tick := time.NewTimer(s.cfg.DrainTimeout), time.NewTicker(sweepEvery)
	defer limit.Stop()
	defer tick.Stop()
	for {
		s.attempts.Sweep()
		select {
		case <-empty:
			return true
		case <-tick.C:
		case <-limit.C:
			s.cfg.Logger.Warn("drain timed out; exiting with unreleased attempts", "pools", s.attempts.Pools())
			return false
		case <-s.bus.Closed():
			return false
		}
	}
}

func (s *server) sweep(ctx context.Context) {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.attempts.Sweep()
		}
	}
}

func (s *server) handle(q *bus.Request) {
	r, err := s.decoder.Decode(q.Data)
	if err != nil {
		s.attempts.Refuse(idsOf(q.Data), q, "invalid request: "+err.Error())
		return
	}
	q.Data = nil // it may be large, and q lives as long as its attempt is watched
	switch r.Op {
	case executor.OpRun:
		s.attempts.Run(context.WithoutCancel(q.Context()), r, q)
	case executor.OpAsk:
		s.attempts.Ask(r, q)
	case executor.OpStop:
		s.attempts.Stop(r, q)
	case executor.OpRelease:
		s.attempts.Release(r)
		for _, also := range r.Also {
			s.attempts.Release(executor.Request{Call: also.Call, Attempt: also.Attempt})
		}
	default:
		s.attempts.Refuse(r, q, fmt.Sprintf("op is %q, want %q, %q, %q or %q", text.Cut(string(r.Op), 32),
			executor.OpRun, executor.OpAsk, executor.OpStop, executor.OpRelease))
	}
}

// idsOf returns the ids of an unreadable request, as far as they can be read, because its
// refusal must hold forever.
func idsOf(data []byte) executor.Request {
	var ids struct {
		Call    string `json:"call"`
		Attempt string `json:"attempt"`
	}
	first, _, _ := bytes.Cut(data, []byte{'\n'})
	_ = json.Unmarshal(first, &ids) // if it does not parse, there are no ids
	return executor.Request{Call: ids.Call, Attempt: ids.Attempt}
}
