package hub

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"

	"skandha.dev/services/uibridge/contract"
)

// busState is the state of the bus that feeds are sent. The zero value means that all is
// well.
type busState struct {
	away  bool
	fault string // why the bus cannot store
}

// faultEvery is how often the hub checks whether the bus can store.
const faultEvery = time.Second

// watch notifies feeds when the bus has been away for a while or cannot store, and
// when that is over.
func (h *Hub) watch(ctx context.Context) {
	conn := h.deps.Client.Bus.Conn()
	changed := conn.StatusChanged(nats.CONNECTED, nats.RECONNECTING, nats.DISCONNECTED)
	defer conn.RemoveStatusListener(changed)
	// Connections are lost briefly whenever a server of a cluster restarts; feeds are not
	// notified of that.
	timer := time.NewTimer(h.cfg.Outage)
	defer timer.Stop()
	tick := time.NewTicker(faultEvery)
	defer tick.Stop()
	waits := true // the timer is running
	for {
		switch {
		case conn.IsConnected():
			timer.Stop()
			waits = false
			h.wakeAll(false)
		case !h.busState().away && !waits:
			timer.Reset(h.cfg.Outage)
			waits = true
		}
		select {
		case <-changed:
		case <-tick.C:
		case <-timer.C:
			waits = false
			h.wakeAll(!conn.IsConnected())
		case <-ctx.Done():
			return
		}
	}
}

func (h *Hub) busState() busState { return h.bus.Load().(busState) } //nolint:forcetypeassert // New stored one

// wakeAll wakes all feeds if the state has changed; each compares it with what it last
// sent.
func (h *Hub) wakeAll(away bool) {
	state := busState{away: away}
	if f := h.deps.Client.Bus.StorageFault(); f != nil && !away {
		state.fault = f.Error()
	}
	if h.bus.Swap(state) == state {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for f := range h.feeds {
		f.poke()
	}
}

func (s *session) aboutBus(state busState) (contract.Notification, error) {
	return encode(place{}, contract.OnBus, contract.Bus{
		About: contract.About{Agent: s.ref.Agent, Session: s.ref.Session}, Connected: !state.away, Fault: state.fault,
	})
}
