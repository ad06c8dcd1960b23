package shell_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core"
	"skandha.dev/services/internal/client"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/store"
	"skandha.dev/services/test/natstest"
)

// Beyond the limit the client refuses inputs, and nothing else. Every acknowledged input
// still completes.
func TestInputsAreRefusedBeyondTheBacklog(t *testing.T) {
	t.Parallel()
	limit := 3
	s := start(t, core.Config{Limits: core.SystemLimits{Backlog: &limit}})
	release := make(chan struct{})
	s.model = func(m provider.Message) provider.Response {
		<-release
		return provider.Response{TextContent: "echo: " + m.Text}
	}
	var taken []subject.Ref
	var err error
	for n := 0; err == nil; n++ {
		if n > 100_000 { // the backlog is measured about once a second
			t.Fatal("no input is refused")
		}
		ref := subject.Ref{Agent: "main", Session: subject.Session(fmt.Sprintf("s%d", n%200))}
		if _, err = s.client(t).Say(natstest.Context(t), ref, event.Input{Text: "hello"}); err == nil {
			taken = append(taken, ref)
		}
	}
	if !errors.Is(err, bus.ErrOverloaded) || len(taken) < limit {
		t.Fatalf("after %d inputs: %v", len(taken), err)
	}
	if _, err := s.client(t).Command(natstest.Context(t), taken[0], "cancel"); err != nil {
		t.Errorf("a command: %v", err)
	}
	natstest.Eventually(t, "status names the overload", func() bool { // the core hears the beacon, too
		var st coreapi.Status
		err := s.client(t).Ask(natstest.Context(t), coreapi.VerbStatus, nil, &st)
		return err == nil && fault(st, coreapi.FaultOverload, "the limit is 3")
	})
	close(release)
	natstest.Eventually(t, "inputs are taken again", func() bool {
		_, err := s.client(t).Say(natstest.Context(t), taken[0], event.Input{Text: "again"})
		return err == nil
	})
	if err := s.core.Health(); err != nil {
		t.Errorf("an overloaded core must stay healthy: %v", err)
	}
}

func fault(st coreapi.Status, what, says string) bool {
	for _, f := range st.Faults {
		if f.What == what && strings.Contains(f.Message, says) {
			return true
		}
	}
	return false
}

func (s *system) client(t *testing.T) *client.Client {
	t.Helper()
	c, err := client.New(s.bus, "w", natstest.Logger(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// A core that has seen that the log cannot store is not ready, and reports it to others.
func TestACoreThatCannotStoreIsNotReady(t *testing.T) {
	t.Parallel()
	s := start(t, core.Config{})
	shrink := func(bytes int64) {
		t.Helper()
		if err := s.bus.EnsureStreams(natstest.Context(t), journal.StreamsConfig{MaxBytes: bytes}); err != nil {
			t.Fatal(err)
		}
	}
	bystander := natstest.Connect(t, s.srv)
	if bystander.StorageFault() != nil { // this call starts to follow beacons
		t.Fatal("a fault is reported too early")
	}
	shrink(1 << 20)
	asked, release := make(chan struct{}), make(chan struct{})
	s.model = func(provider.Message) provider.Response {
		close(asked)
		<-release
		return provider.Response{TextContent: "done"}
	}
	ref := subject.Ref{Agent: "main", Session: "full"}
	events := s.follow(ref)
	s.say(ref, event.Input{Text: "hello"})
	<-asked
	for size := 100_000; size > 0; size /= 10 { // fill the stream, so that the core cannot commit the answer
		for s.fits(t, ref, size) {
		}
	}
	close(release)
	natstest.Eventually(t, "the core is not ready", func() bool {
		err := s.core.Health()
		return err != nil && strings.Contains(err.Error(), "the bus cannot store: the stream SESSIONS is full")
	})
	natstest.Eventually(t, "others hear of it", func() bool { return bystander.StorageFault() != nil })
	var st coreapi.Status
	if err := s.client(t).Ask(natstest.Context(t), coreapi.VerbStatus, nil, &st); err != nil {
		t.Fatal(err)
	}
	if !fault(st, coreapi.FaultBus, "the stream SESSIONS is full") {
		t.Errorf("status: %+v", st.Faults)
	}
	shrink(1 << 30)
	natstest.Eventually(t, "the core is ready again, and others hear of it", func() bool {
		return s.core.Health() == nil && bystander.StorageFault() == nil
	})
	s.await(events, event.TypeRecorded)
}

// fits stores a cancel without effect, and reports whether there was room.
func (s *system) fits(t *testing.T, ref subject.Ref, size int) bool {
	t.Helper()
	_, err := s.bus.PublishCause(natstest.Context(t), ref, subject.Cancel, "w", "", make([]byte, size))
	return err == nil
}

// brokenStore is a view that cannot be written while broken is set.
type brokenStore struct {
	store.Store
	broken atomic.Bool
}

var errFull = errors.New("OOM command not allowed")

func (b *brokenStore) SaveSnapshot(ctx context.Context, k store.Key, s store.Snapshot) error {
	if b.broken.Load() {
		return errFull
	}
	return b.Store.SaveSnapshot(ctx, k, s)
}

func (b *brokenStore) SetMark(ctx context.Context, name string, v uint64) error {
	if b.broken.Load() {
		return errFull
	}
	return b.Store.SetMark(ctx, name, v)
}

// Turns continue without the view. Status names its fault until it works again.
func TestAViewThatCannotBeWrittenIsNamed(t *testing.T) {
	t.Parallel()
	s := start(t, core.Config{})
	s.stopCore()
	b := &brokenStore{Store: s.store()}
	s.view = b
	b.broken.Store(true)
	s.core = s.startCore(core.Config{})
	ref := subject.Ref{Agent: "main", Session: "one"}
	events := s.follow(ref)
	s.say(ref, event.Input{Text: "hello"})
	s.await(events, event.TypeRecorded)
	c := s.client(t)
	named := func() bool {
		var st coreapi.Status
		return c.Ask(natstest.Context(t), coreapi.VerbStatus, nil, &st) == nil &&
			fault(st, coreapi.FaultView, errFull.Error())
	}
	natstest.Eventually(t, "the view is named", named)
	if err := s.core.Health(); err != nil {
		t.Errorf("the core must stay healthy without the view: %v", err)
	}
	b.broken.Store(false)
	natstest.Eventually(t, "the view works again", func() bool { return !named() })
}

// A beacon that claims more sessions than any core has does not keep the others' from
// their slots, although nobody uses the share that it claims.
func TestAFalseClaimStarvesNoSession(t *testing.T) {
	t.Parallel()
	s := start(t, core.Config{})
	liar := natstest.Connect(t, s.srv)
	claim := func() {
		err := liar.PublishBeacon(natstest.Context(t), bus.Beacon{
			Limit: 1000, Waiting: []bus.Waiting{{Kind: subject.Provider, Sessions: 1_000_000}},
		})
		if err != nil {
			t.Error(err)
		}
	}
	claim()
	s.background("liar", func(ctx context.Context) error {
		for tick := time.NewTicker(bus.BeaconEvery / 2); ; {
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
				claim()
			}
		}
	})
	for round := range 3 {
		var all []<-chan event.Event
		for n := range 20 {
			ref := subject.Ref{Agent: "main", Session: subject.Session(fmt.Sprintf("r%d-%d", round, n))}
			all = append(all, s.follow(ref))
			s.say(ref, event.Input{Text: "hello"})
		}
		for _, ch := range all {
			s.await(ch, event.TypeRecorded)
		}
	}
}
