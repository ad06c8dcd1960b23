package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/executor"
)

// coalesce is how long changes of the slots are gathered before they are announced.
const coalesce = 20 * time.Millisecond

// announcer announces the instance's offer and pools.
type announcer struct {
	publish func([]byte) error
	pools   func() []executor.Pool
	log     *slog.Logger

	dirty  atomic.Bool // an announcement is due within coalesce
	urgent chan struct{}

	mu        sync.Mutex
	base      executor.Announcement // without pools
	head      []byte                // base as JSON, without its closing brace
	announced []executor.Pool       // the pools of the last announcement
	draining  bool
	gone      bool
}

// setOffer changes the offer. The tools' schemas are large and rarely change, so they
// are encoded here and not for each announcement. accept is called before any announcement has the
// new offer: what is announced must not be refused.
func (a *announcer) setOffer(o Offer, accept func()) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	base := a.base
	base.Tools, base.Providers, base.Project = o.Tools, o.Providers, o.Project
	b, err := json.Marshal(struct {
		executor.Announcement
		Pools    *struct{} `json:"pools,omitempty"`    // appended each time
		Draining *struct{} `json:"draining,omitempty"` // likewise
		Gone     *struct{} `json:"gone,omitempty"`     // likewise
	}{Announcement: base})
	if err != nil {
		return fmt.Errorf("encoding the announcement: %w", err)
	}
	accept()
	a.base, a.head = base, b[:len(b)-1]
	return nil
}

// announce announces now; with onlyChanges, only if the pools have changed since the last
// announcement.
func (a *announcer) announce(onlyChanges bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	pools := a.pools()
	if a.gone || onlyChanges && slices.Equal(pools, a.announced) {
		return
	}
	a.send(pools)
}

func (a *announcer) send(pools []executor.Pool) {
	tail, err := json.Marshal(struct {
		Pools    []executor.Pool `json:"pools"`
		Draining bool            `json:"draining,omitempty"`
		Gone     bool            `json:"gone,omitempty"`
	}{pools, a.draining, a.gone})
	if err == nil {
		msg := make([]byte, 0, len(a.head)+len(tail))
		msg = append(append(msg, a.head...), ',')
		err = a.publish(append(msg, tail[1:]...))
	}
	if err != nil { // the next announcement makes up for it
		a.log.Debug("could not announce", "error", err)
		return
	}
	a.announced = pools
}

// drain announces that the instance accepts no new work.
func (a *announcer) drain() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.draining = true
	a.send(a.pools())
}

// leave sends the last announcement.
func (a *announcer) leave() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.gone = true
	a.send(a.pools())
}

// changed is called at every change of the slots, so it must be cheap.
func (a *announcer) changed(urgent bool) {
	if urgent {
		select {
		case a.urgent <- struct{}{}:
		default:
		}
	}
	if a.dirty.CompareAndSwap(false, true) {
		time.AfterFunc(coalesce, func() {
			a.dirty.Store(false)
			a.announce(true)
		})
	}
}

// run announces every executor.AnnounceEvery, and at once when a pool has become
// full or free.
func (a *announcer) run(ctx context.Context) {
	tick := time.NewTicker(executor.AnnounceEvery)
	defer tick.Stop()
	a.announce(false)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			a.announce(false)
		case <-a.urgent:
			a.announce(true)
		}
	}
}

func newAnnouncer(
	cfg Config, instance subject.Instance, pools func() []executor.Pool, publish func([]byte) error,
) (*announcer, error) {
	a := &announcer{
		publish: publish, pools: pools, log: cfg.Logger, urgent: make(chan struct{}, 1),
		base: executor.Announcement{
			Instance: instance, Kind: cfg.Kind, Service: cfg.Service, Host: cfg.Host, Started: time.Now().UTC(),
		},
	}
	return a, a.setOffer(cfg.Offer, func() {})
}
