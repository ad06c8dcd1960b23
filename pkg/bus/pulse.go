package bus

import (
	"context"
	"time"
)

// The client's pings have long intervals: the server answers them in the connection's order,
// after all appends that it still has to sync, and a busy server is not dead. They detect
// what the pulse misses.
const (
	pingInterval    = 10 * time.Second
	pingsUnanswered = 3
)

// A server that disappears silently (its machine or the network fails) is detected by
// a number of beats in a row in which nothing was received, although it was sent a ping.
// Anything that a busy server sends, such as an acknowledgement or a heartbeat of a
// pull request, counts as an answer.
//
// Beats are counted, not time: a process that was stopped itself finds the answer
// after one beat.
const (
	pulseEvery         = time.Second
	silentBeatsControl = 4
	silentBeatsLog     = 10 // slow syncs may queue up
)

// watchPulse calls silent if the server is silent for that many beats. It returns when the
// connection is closed.
func (l *Link) watchPulse(beats int, silent func()) {
	beat := time.NewTicker(pulseEvery)
	defer beat.Stop()
	missed, had := 0, uint64(0)
	for {
		select {
		case <-l.closed:
			return
		case <-beat.C:
		}
		if !l.nc.IsConnected() {
			missed = 0
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), pulseEvery)
		err := l.nc.FlushWithContext(ctx)
		cancel()
		got := l.nc.Stats().InMsgs
		if err == nil || got != had || !l.nc.IsConnected() {
			missed, had = 0, got
			continue
		}
		if missed++; missed >= beats {
			missed = 0
			l.b.log.Warn("the bus is silent; reconnecting",
				"connection", l.name, "for", time.Duration(beats)*pulseEvery)
			silent()
		}
	}
}

// giveUp forces a reconnect, to another server if there is one.
func (l *Link) giveUp() {
	if err := l.nc.ForceReconnect(); err != nil {
		l.b.log.Debug("reconnecting failed", "connection", l.name, "error", err)
	}
}
