package bus

import (
	"context"
	"encoding/json"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// RunFile is the name of the file in a system's data directory with the address of its bus:
// {"url": "nats://HOST:PORT", "token": "TOKEN"}. It does not exist while no system runs.
const RunFile = "run.json"

// finder connects to the address in a [RunFile], or else to that of the configuration. It
// reads the file at each attempt, so that it finds a bus that has restarted at another
// address.
type finder struct {
	dir   string
	token string // without a file
	wait  time.Duration
}

func (f finder) read() (host, token string, ok bool) {
	var run struct{ URL, Token string }
	b, err := os.ReadFile(filepath.Join(f.dir, RunFile))
	if err != nil || json.Unmarshal(b, &run) != nil {
		return "", "", false
	}
	u, err := url.Parse(run.URL)
	if err != nil || u.Host == "" {
		return "", "", false
	}
	return u.Host, run.Token, true
}

// Dial implements nats.CustomDialer.
func (f finder) Dial(network, address string) (net.Conn, error) {
	if host, _, ok := f.read(); ok {
		address = host
	}
	ctx, cancel := context.WithTimeout(context.Background(), f.wait)
	defer cancel()
	return (&net.Dialer{}).DialContext(ctx, network, address)
}

// currentToken prefers the credentials of a plugin or listener to those of the file, which are an
// operator's and new each time that the system starts.
func (f finder) currentToken() string {
	if c, ok := parseJWT(f.token); ok && slices.Contains(c.NATS.Tags, PartyTag) {
		return f.token
	}
	if _, token, ok := f.read(); ok {
		return token
	}
	return f.token
}

// splitToken takes the token out of a URL, or several, since the client accepts it from one place
// only.
func splitToken(at, token string) (string, string) {
	if at == "" {
		return "", token
	}
	urls := strings.Split(at, ",")
	for i, one := range urls {
		u, err := url.Parse(strings.TrimSpace(one))
		if err != nil || u.User == nil {
			continue
		}
		if _, has := u.User.Password(); has {
			continue
		}
		token, u.User = u.User.Username(), nil
		urls[i] = u.String()
	}
	return strings.Join(urls, ","), token
}
