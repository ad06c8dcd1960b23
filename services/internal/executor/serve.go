package executor

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/executor"
	"skandha.dev/pkg/subject"
)

const (
	// atOnce bounds the requests that are handled at a time. Each attempt that runs
	// is one of them, and a request to stop it must still be heard.
	atOnce = 1 << 16
	// sweepEvery is how often results are looked through for those that nobody wants any more.
	sweepEvery = time.Second
	// goodbye bounds the sending of what is left at the end.
	goodbye = 2 * time.Second
	// settle is how long an offer stands before the next is taken: all that change
	// meanwhile are one announcement, which may be large.
	settle = 100 * time.Millisecond
)

// Serve runs an executor instance under the bus's instance id until ctx ends, and
// then drains: it announces so, refuses what waits and what comes, and lets what
// runs finish. It ends when all results are released; after Config.DrainTimeout
// it stops what still runs and goes. It returns nil if it ended because ctx did.
//
// A process serves one instance per kind: the id is new at each start of the
// process, and only so may ids of attempts be forgotten.
func Serve(ctx context.Context, b *bus.Bus, cfg Config) error {
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
	bus       *bus.Bus
	cfg       Config
	table     *Attempts
	announcer *announcer
	decoder   executor.Decoder
}

func newServer(b *bus.Bus, cfg Config) (*server, error) {
	cfg.Logger = cfg.Logger.With("executor", string(b.Instance()))
	t := newTable(cfg, b.Instance())
	subj := subject.Announce(cfg.Kind, b.Instance())
	a, err := newAnnouncer(cfg, b.Instance(), t.Pools, func(msg []byte) error {
		return b.Publish(context.Background(), subj, nil, msg)
	})
	if err != nil {
		return nil, err
	}
	t.changed = a.changed
	return &server{bus: b, cfg: cfg, table: t, announcer: a}, nil
}

func (s *server) serve(ctx context.Context) error {
	inst := s.bus.Instance()
	r, err := s.bus.Respond(subject.Executor(s.cfg.Kind, inst), "", string(inst), s.handle, bus.Concurrency(atOnce))
	if err != nil {
		return fmt.Errorf("serving as %s: %w", s.cfg.Service, err)
	}
	defer r.Stop()
	discover, err := s.bus.Conn().Subscribe(subject.Discover(s.cfg.Kind), func(*nats.Msg) { s.announcer.say(false) })
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

	s.cfg.Logger.Info("executor is ready", "kind", string(s.cfg.Kind), "tools", len(s.cfg.Tools), "providers", len(s.cfg.Providers))
	updates := s.cfg.Updates
	var settled <-chan time.Time
	for {
		select {
		case <-s.bus.Closed():
			s.table.StopAll()
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

// update replaces the offer. What it no longer holds is refused from now on.
func (s *server) update(o Offer) {
	pools := make(map[string]bool, len(s.cfg.Pools))
	for _, p := range s.cfg.Pools {
		pools[p.Name] = true
	}
	err := o.validate(s.cfg.Kind, pools)
	if err == nil {
		err = s.announcer.setOffer(o)
	}
	if err != nil {
		s.cfg.Logger.Error("ignoring an offer that is not valid", "error", err)
		return
	}
	s.table.setOffer(o)
	s.announcer.say(false)
}

func (s *server) drain() {
	s.cfg.Logger.Info("executor is draining", "at_most", s.cfg.DrainTimeout)
	empty := s.table.Drain()
	s.announcer.drain()
	limit := time.NewTimer(s.cfg.DrainTimeout)
	defer limit.Stop()
	select {
	case <-empty:
	case <-limit.C:
		s.cfg.Logger.Warn("executor goes although not everything is released", "pools", s.table.Pools())
		s.table.StopAll()
	case <-s.bus.Closed():
		s.table.StopAll()
	}
	s.announcer.leave()
	ctx, cancel := context.WithTimeout(context.Background(), goodbye)
	defer cancel()
	if err := s.bus.Conn().FlushWithContext(ctx); err != nil {
		s.cfg.Logger.Debug("could not flush the last messages", "error", err)
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
			s.table.Sweep()
		}
	}
}

func (s *server) handle(q *bus.Request) {
	r, err := s.decoder.Decode(q.Data)
	if err != nil {
		s.table.Refuse(idsOf(q.Data), q, "the request cannot be read: "+err.Error())
		return
	}
	q.Data = nil // may be large, and lives as long as its attempt is watched
	switch r.Op {
	case executor.OpRun:
		s.table.Run(context.WithoutCancel(q.Context()), r, q)
	case executor.OpAsk:
		s.table.Ask(r, q)
	case executor.OpStop:
		s.table.Stop(r, q)
	case executor.OpRelease:
		s.table.Release(r)
		for _, also := range r.Also {
			s.table.Release(executor.Request{Call: also.Call, Attempt: also.Attempt})
		}
	default:
		s.table.Refuse(r, q, fmt.Sprintf("op is %q, want %q, %q, %q or %q", clip(string(r.Op), 32),
			executor.OpRun, executor.OpAsk, executor.OpStop, executor.OpRelease))
	}
}

// idsOf is what can still be read of a request that cannot: whose refusal it is
// that must hold for ever.
func idsOf(data []byte) executor.Request {
	var ids struct {
		Call    string `json:"call"`
		Attempt string `json:"attempt"`
	}
	first, _, _ := bytes.Cut(data, []byte{'\n'})
	_ = json.Unmarshal(first, &ids) // what does not parse has no ids
	return executor.Request{Call: ids.Call, Attempt: ids.Attempt}
}
