package identities

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/nats-io/jwt/v2"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/runes"
)

// refusals are the clients that the server did not let in, as far as this core has heard.
type refusals struct {
	latest map[subject.Identity]coreapi.Refusal
	said   map[string]*said // what was logged, by identity or host, and kind
}

// said is a line of the log that is not repeated for a while.
type said struct {
	at       time.Time
	attempts int // since then
}

const (
	repeatAfter = 10 * time.Minute // when the same line is logged again
	maxSaid     = 1000
	maxName     = 80 // of a client, in bytes
)

// say reports whether to log a line, and how many were not logged since the last one.
func (r *refusals) say(key string, now time.Time) (attempts int, ok bool) {
	s := r.said[key]
	if s != nil && now.Sub(s.at) < repeatAfter {
		s.attempts++
		return 0, false
	}
	if s == nil && len(r.said) >= maxSaid {
		for k, old := range r.said {
			if now.Sub(old.at) >= repeatAfter {
				delete(r.said, k)
			}
		}
		if len(r.said) >= maxSaid {
			return 0, false
		}
	}
	if s != nil {
		attempts = s.attempts
	}
	r.said[key] = &said{at: now}
	return attempts + 1, true
}

// The kinds of refusals.
const (
	kindNone     = "none"
	kindForeign  = "foreign"
	kindExpired  = "expired"
	kindEarly    = "early"
	kindRevoked  = "revoked"
	kindReplaced = "replaced"
	kindOther    = "other"
	kindRenamed  = "renamed"
)

// refused notes the server's message that it has not let a client in.
func (s *Identities) refused(body []byte) {
	var c connection
	if json.Unmarshal(body, &c) != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	name, kind, cause := s.whyRefused(c.Client.JWT, c.Time)
	if s.known[name] != nil {
		s.refusals.latest[name] = coreapi.Refusal{At: c.Time, Cause: cause}
	}
	s.report("a client was refused", c, name, kind, cause)
}

// report logs what became of a client; s.mu is held.
func (s *Identities) report(what string, c connection, name subject.Identity, kind, cause string) {
	key := kind + " " + string(name)
	if name == "" {
		key += " " + c.Client.Host
	}
	if attempts, ok := s.refusals.say(key, s.cfg.Now()); ok {
		client, _ := runes.Split(c.Client.Name, maxName)
		s.cfg.Log.Warn(what, "identity", string(name), "cause", cause, "client", client, "host", c.Client.Host,
			"attempts", attempts)
	}
}

// whyRefused is why the server refuses a JWT at a time of its clock, and which identity it is of, if that is certain;
// s.mu is held.
func (s *Identities) whyRefused(token string, at time.Time) (name subject.Identity, kind, cause string) {
	claims, err := jwt.DecodeUserClaims(token)
	if err != nil { // or it is not signed as it says
		return "", kindNone, "it shows no credentials, or damaged ones; get some: skandha plugins invite NAME"
	}
	name, r, generation := s.signed(claims)
	if r == nil && !s.cfg.Authority.IsService(claims.Issuer, claims.IssuerAccount) {
		return "", kindForeign, "its credentials are of another system or of keys that were replaced; " +
			"get some of this one: skandha plugins invite NAME, or, for a service, skandha secrets"
	}
	again := "skandha plugins invite " + string(name)
	if r == nil {
		again = "skandha secrets"
	}
	exp, nbf := time.Unix(claims.Expires, 0), time.Unix(claims.NotBefore, 0)
	switch {
	case r != nil && !r.Revoked.IsZero():
		return name, kindRevoked, "it was revoked at " + stamp(r.Revoked) + "; to let it in again: " + again
	case r != nil && generation < r.Generation:
		return name, kindRevoked, "its credentials are from before it was revoked and invited again; give it the new ones"
	case r != nil && r.replaced(claims.Subject, s.cfg.Now()):
		return name, kindReplaced, "its credentials were replaced; give it the new ones, or make others: skandha plugins rotate " +
			string(name)
	case claims.Expires > 0 && !at.Before(exp):
		return name, kindExpired, "its credentials expired at " + stamp(exp) + s.clocks(at, exp) + "; make new ones: " + again
	case claims.NotBefore > 0 && at.Before(nbf):
		return name, kindEarly, fmt.Sprintf("its credentials are not valid before %s, and the clock of the bus says %s; "+
			"set the clock that is wrong, or make new ones: %s", stamp(nbf), stamp(at), again)
	}
	return name, kindOther, "it does not prove that the credentials are its own, or the server does not know its account yet"
}

// clocks says that the clock of core differs from that of the bus, if something has ended for the bus alone.
func (s *Identities) clocks(at, end time.Time) string {
	if now := s.cfg.Now(); now.Before(end) {
		return fmt.Sprintf(" by the clock of the bus, which says %s, while that of core says %s: set the one that is wrong",
			stamp(at), stamp(now))
	}
	return ""
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// signed returns the identity whose account has signed a JWT, and the generation of that account; s.mu is held.
func (s *Identities) signed(c *jwt.UserClaims) (name subject.Identity, r *record, generation int) {
	name = subject.Identity(c.Name)
	if r = s.known[name]; r == nil {
		return "", nil, 0
	}
	for generation = r.Generation; generation > 0; generation-- {
		if id, err := s.cfg.Authority.PartyID(name, generation); err == nil && id == c.Issuer {
			return name, r, generation
		}
	}
	return "", nil, 0
}

// replaced reports whether a credential has ended before its time.
func (r *record) replaced(user string, now time.Time) bool {
	for _, k := range r.Keys {
		if k.User == user {
			return k.over(now)
		}
	}
	return false
}

// renamed reports a connection of a program that calls itself otherwise than its credentials; s.mu is held. What it
// sends under its own name reaches nobody.
func (s *Identities) renamed(c connection, name subject.Identity) {
	called := programOf(c.Client.Name)
	if called == "" || called == programOf(string(bus.NewInstance(string(name)))) {
		return
	}
	s.report("a program uses the credentials of another name", c, name, kindRenamed, fmt.Sprintf(
		"it calls itself %s, and reaches nobody under that name; to give it its own credentials: skandha plugins invite %s",
		called, called))
}

// programOf is how a program calls itself that uses package bus; empty for others.
func programOf(connection string) string {
	instance, _, _ := strings.Cut(connection, "/")
	m := instancePattern.FindStringSubmatch(instance)
	if m == nil || m[1] == "skandha" { // it has no name
		return ""
	}
	return m[1]
}

// instancePattern is what [bus.NewInstance] makes.
var instancePattern = regexp.MustCompile(`^([A-Za-z0-9_-]+)-[0-9a-f]{16}$`)
