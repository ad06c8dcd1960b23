package bus

import (
	"net/url"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

// A server of a cluster may be cut off from the others and still accept connections. What is connected to it then
// waits in vain, so it goes to another one. Both links go to the same server: otherwise one might be left behind.

// tryElsewhere reconnects to another server, and reports whether there is one.
func (b *Bus) tryElsewhere(why string) bool {
	if len(b.ctl.nc.Servers()) < 2 {
		return false
	}
	b.log.Warn("connecting to another server", "reason", why, "left", b.ctl.nc.ConnectedServerName())
	b.ctl.giveUp() // the other link follows
	return true
}

// follower sends the log link to the server of the control link.
type follower struct {
	tried atomic.Bool  // since the last loss of the connection: if that failed, any server will do
	last  atomic.Int64 // time of the last move, in Unix nanoseconds
}

// followPause is the shortest time between two moves: a server may refuse the second link.
const followPause = 10 * time.Second

// follow makes both links go to the same server.
func (b *Bus) follow() {
	b.follower.tried.Store(false)
	if !b.ctl.opened.Load() || !b.data.opened.Load() {
		return
	}
	ctl, data := b.ctl.nc.ConnectedServerId(), b.data.nc.ConnectedServerId()
	if ctl == "" || data == "" || ctl == data || len(b.ctl.nc.Servers()) < 2 {
		return
	}
	if now := time.Now().UnixNano(); now-b.follower.last.Swap(now) < int64(followPause) {
		return
	}
	b.data.giveUp()
}

// choose implements nats.ReconnectToServerHandler for the log link. nil means the client's own choice.
func (b *Bus) choose(servers []nats.Server, _ nats.ServerInfo) (*nats.Server, time.Duration) {
	if b.follower.tried.Swap(true) || !b.ctl.opened.Load() {
		return nil, 0
	}
	at := []string{b.ctl.nc.ConnectedAddr()}
	if u, err := url.Parse(b.ctl.nc.ConnectedUrl()); err == nil {
		at = append(at, u.Host)
	}
	for _, addr := range at {
		i := slices.IndexFunc(servers, func(s nats.Server) bool { return addr != "" && s.URL.Host == addr })
		if i >= 0 {
			return &servers[i], 0
		}
	}
	return nil, 0
}
