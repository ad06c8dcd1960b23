package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
)

// registry is the name of the registry in reply subjects.
const registry = "core"

const (
	// askWait bounds one request to the registry.
	askWait = 5 * time.Second
	// minBeat and maxBeat bound the time between two heartbeats.
	minBeat = 10 * time.Millisecond
	maxBeat = time.Minute
	// retryBeat is the time after which an unanswered heartbeat is sent again.
	retryBeat = time.Second

	firstPause = 100 * time.Millisecond
	lastPause  = 2 * time.Second
)

// backoff computes the pause before the next attempt: twice as long each time, with jitter.
type backoff struct{ last time.Duration }

func (b *backoff) next() time.Duration {
	b.last = min(max(2*b.last, firstPause), lastPause)
	return b.last/2 + rand.N(b.last/2)
}

// keepLease registers the plugin and keeps its lease until ctx ends.
func (s *server) keepLease(ctx context.Context) error {
	for {
		next, err := s.step(ctx)
		if err != nil {
			return ended(ctx, err)
		}
		t := time.NewTimer(next)
		select {
		case <-ctx.Done():
			t.Stop()
			return nil
		case <-s.bus.Closed():
			t.Stop()
			return fmt.Errorf("the connection to the bus was closed: %w", bus.ErrUnavailable)
		case <-t.C:
		}
	}
}

// step sends the registry one request, and returns the time until the next.
func (s *server) step(ctx context.Context) (next time.Duration, err error) {
	if s.lease == nil {
		return s.register(ctx)
	}
	return s.heartbeat(ctx)
}

func (s *server) register(ctx context.Context) (time.Duration, error) {
	lease, err := s.ask(ctx, subject.Register, s.m)
	switch code := bus.CodeOf(err); {
	case err == nil:
		return s.granted(ctx, lease)
	case ctx.Err() != nil:
		s.unanswered = true
		return 0, err
	case code == bus.CodeInvalidArgument, code == bus.CodeDenied, code == bus.CodeTooLarge:
		return 0, fmt.Errorf("rejected by the registry: %w", err)
	case code == bus.CodeConflict:
		// The queue group is the plugin's name: requests must go to the plugin that holds it.
		if err := s.withdraw(ctx); err != nil {
			s.log.Warn("unsubscribing from the plugin's subjects failed", "error", err)
		}
		s.report(Waiting, "not registered: "+message(err))
	case code == bus.CodeUnavailable:
		s.report(Waiting, "not registered: no response from core")
	default:
		s.report(Waiting, fmt.Sprintf("not registered: the registry failed (%s)", code))
		s.log.Debug("registering failed", "error", err)
	}
	s.listeners.close()
	return s.pause.next(), nil
}

// message returns the text of the registry's error, without what the caller added.
func message(err error) string {
	if e, ok := errors.AsType[*bus.Error](err); ok {
		return e.Error()
	}
	return err.Error()
}

// granted starts to use the lease. After a conflict it subscribes only now, because another
// plugin held the subjects before.
func (s *server) granted(ctx context.Context, lease Lease) (time.Duration, error) {
	s.lease, s.pause, s.quiet = &lease, backoff{}, false
	if s.responders == nil && len(s.endpoints) > 0 {
		if err := s.subscribe(ctx); err != nil {
			return 0, err
		}
	}
	s.gate.open()
	return s.enter(lease)
}

// withdraw refuses the requests that wait at the gate and unsubscribes.
func (s *server) withdraw(ctx context.Context) error {
	s.gate.refuse()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.drain)
	defer cancel()
	return s.unsubscribe(ctx)
}

// enter acts on the state of the lease.
func (s *server) enter(lease Lease) (time.Duration, error) {
	switch lease.State {
	case Draining, Gone:
		if lease.Reason != "" {
			return 0, fmt.Errorf("%w: %s", ErrUnloaded, lease.Reason)
		}
		return 0, ErrUnloaded
	case Active:
		s.listeners.open()
	default:
		s.listeners.close()
	}
	s.report(lease.State, lease.Reason)
	return beat(lease), nil
}

func beat(l Lease) time.Duration {
	return min(max(time.Duration(l.TTLMS)*time.Millisecond/3, minBeat), maxBeat)
}

func (s *server) heartbeat(ctx context.Context) (time.Duration, error) {
	lease, err := s.renew(ctx, s.lease.Hash)
	switch bus.CodeOf(err) {
	case "":
		if s.quiet {
			s.log.Info("the registry responds again")
		}
		s.lease, s.quiet = &lease, false
		return s.enter(lease)
	case bus.CodeUnavailable, bus.CodeTimeout, bus.CodeCancelled, bus.CodeInternal:
		// Without a core, the lease does not expire; or core is available again soon.
		if !s.quiet && ctx.Err() == nil {
			s.quiet = true
			s.log.Warn("the registry does not respond; the plugin keeps serving and retries", "error", err)
		}
		return min(beat(*s.lease), retryBeat), nil
	}
	s.log.Info("lost the lease; registering again", "error", err)
	s.lease = nil
	return 0, nil
}

// keepAlive renews the lease while the plugin drains, so that the registry does not take it
// for dead. The returned function stops it.
func (s *server) keepAlive(ctx context.Context) (stop func()) {
	if s.lease == nil {
		return func() {}
	}
	lease := *s.lease
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for next := beat(lease); ; {
			if pause(ctx, next); ctx.Err() != nil {
				return
			}
			next = beat(lease)
			if _, err := s.renew(ctx, lease.Hash); err != nil {
				s.log.Debug("renewing the lease while draining failed", "error", err)
				next = min(next, retryBeat)
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// unregister notifies the registry that this process ends, even if other plugins depend on
// it: they will wait.
func (s *server) unregister(ctx context.Context) LeaseState {
	lease, err := s.ask(ctx, subject.Unregister,
		Unregister{Instance: s.m.Instance, Force: true, Reason: "the plugin's process is exiting"})
	if err != nil {
		if !errors.Is(err, bus.ErrNotFound) {
			s.log.Warn("could not unregister; the lease will expire", "error", err)
		}
		return ""
	}
	return lease.State
}

// renew sends heartbeats, one every [retryBeat], until one of them is answered or
// [askWait] has passed.
func (s *server) renew(ctx context.Context, hash string) (Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	type answer struct {
		lease Lease
		err   error
	}
	first := make(chan answer, askWait/retryBeat+1)
	again := time.NewTicker(retryBeat)
	defer again.Stop()
	for {
		go func() {
			lease, err := s.ask(ctx, subject.Heartbeat, Heartbeat{Instance: s.m.Instance, Hash: hash})
			first <- answer{lease, err}
		}()
		select {
		case a := <-first:
			return a.lease, a.err
		case <-again.C:
		}
	}
}

// ask sends one request to the registry.
func (s *server) ask(ctx context.Context, verb subject.PluginVerb, question any) (lease Lease, err error) {
	body, err := json.Marshal(question)
	if err != nil {
		return lease, bus.Errorf(bus.CodeInvalidArgument, "encoding %s: %v", verb, err)
	}
	ctx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	answer, err := s.caller.Request(ctx, subject.Registry(verb, s.m.Name), registry, body)
	if err != nil {
		return lease, err
	}
	if err := json.Unmarshal(answer, &lease); err != nil {
		return lease, bus.Errorf(bus.CodeInternal, "the registry's answer is not a lease: %v", err)
	}
	return lease, nil
}
