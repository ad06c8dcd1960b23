package hub

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"

	"skandha.dev/services/uibridge/contract"
)

// watch has feeds told when the bus has been away for a while, and when it is back.
func (h *Hub) watch(ctx context.Context) {
	conn := h.deps.Client.Bus.Conn()
	changed := conn.StatusChanged(nats.CONNECTED, nats.RECONNECTING, nats.DISCONNECTED)
	defer conn.RemoveStatusListener(changed)
	// Connections are lost for a moment whenever a server of a cluster restarts; that
	// is nobody's business.
	timer := time.NewTimer(h.cfg.Outage)
	defer timer.Stop()
	for {
		if conn.IsConnected() {
			timer.Stop()
			h.tellBus(false)
		} else if !h.away.Load() {
			timer.Reset(h.cfg.Outage)
		}
		select {
		case <-changed:
		case <-timer.C:
			h.tellBus(!conn.IsConnected())
		case <-ctx.Done():
			return
		}
	}
}

// tellBus wakes all feeds if something has changed; each looks by itself.
func (h *Hub) tellBus(away bool) {
	if h.away.Swap(away) == away {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for f := range h.feeds {
		f.poke()
	}
}

func (s *session) aboutBus(connected bool) (contract.Notification, error) {
	return encode(place{}, contract.OnBus, contract.Bus{About: contract.About{Agent: s.ref.Agent, Session: s.ref.Session}, Connected: connected})
}
