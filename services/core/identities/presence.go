package identities

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"skandha.dev/pkg/subject"
)

// presence is who is connected, as far as this core has heard.
type presence struct {
	at   map[subject.Identity]time.Time       // when it last connected or disconnected
	open map[subject.Identity]map[string]bool // its connections, by server and number
}

func (p presence) of(name subject.Identity) (open int, seen time.Time) {
	open, seen = len(p.open[name]), p.at[name]
	if open > 0 {
		seen = time.Now()
	}
	return open, seen
}

// connection is the server's message that a client has connected or disconnected.
type connection struct {
	Type   string
	Time   time.Time `json:"timestamp"`
	Server struct {
		ID string `json:"id"`
	}
	Client struct {
		ID      uint64 `json:"id"`
		Account string `json:"acc"`
		Name    string `json:"name"`
		Host    string `json:"host"`
		JWT     string `json:"jwt"`
	}
	Reason string `json:"reason"` // of a disconnect
}

// heard notes a message of the server.
func (s *Identities) heard(subj string, body []byte) {
	if strings.HasSuffix(subj, refusedSuffix) {
		s.refused(body)
		return
	}
	var c connection
	if json.Unmarshal(body, &c) != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	name, ok := s.accounts[c.Client.Account]
	if !ok {
		return
	}
	s.presence.at[name] = c.Time
	key := c.Server.ID + " " + strconv.FormatUint(c.Client.ID, 10)
	if c.Type == connected {
		if s.presence.open[name] == nil {
			s.presence.open[name] = map[string]bool{}
		}
		s.presence.open[name][key] = true
		s.renamed(c, name)
		return
	}
	if c.Reason == expired {
		s.report("a connection was closed", c, name, kindExpired,
			"its credentials have expired; make new ones: skandha plugins invite "+string(name))
	}
	delete(s.presence.open[name], key)
}

// connected is the type of the message about a new connection.
const connected = "io.nats.server.advisory.v1.client_connect"

// expired is the server's reason to close a connection whose credentials have expired.
const expired = "Authentication Expired"
