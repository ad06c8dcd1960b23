package bus

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// clockSkew is how far two clocks may differ before one of them is called wrong.
const clockSkew = time.Minute

func isAuthError(err error) bool {
	return errors.Is(err, nats.ErrAuthorization) || errors.Is(err, nats.ErrAuthExpired) ||
		errors.Is(err, nats.ErrAuthRevoked) || errors.Is(err, nats.ErrAccountAuthExpired)
}

// refused adds the probable cause and what to do to an error with which the server has refused the connection. The
// server does not say the cause, so that this is what the credentials and this machine's clock tell.
func (b *Bus) refused(err error) error {
	shown, _ := parseJWT(b.cfg.shown())
	system := ""
	if b.cfg.Data != "" && b.cfg.InProcess == nil {
		_, token, _ := (finder{dir: b.cfg.Data}).read()
		if operator, ok := parseJWT(token); ok {
			system = operator.account()
		}
	}
	return fmt.Errorf("%w; %s", err, shown.whyRefused(err, system, time.Now()))
}

// whyRefused is the probable cause of a refusal, and what to do. system is the account of the bus's system; empty if
// it is unknown.
func (c claims) whyRefused(err error, system string, now time.Time) string {
	at := func(unix int64) string { return time.Unix(unix, 0).UTC().Format(time.RFC3339) }
	clock := "this machine's clock says " + now.UTC().Format(time.RFC3339)
	switch {
	case c.Subject == "":
		return "check the token, user, creds_file or nkey_seed_file"
	case errors.Is(err, nats.ErrAuthRevoked):
		return fmt.Sprintf("the credentials of %s were revoked or replaced; %s", c.Name, c.renewed())
	case c.Expires > 0 && c.Expires <= now.Unix():
		return fmt.Sprintf("the credentials of %s expired at %s (%s); %s", c.Name, at(c.Expires), clock, c.renewed())
	case errors.Is(err, nats.ErrAuthExpired), errors.Is(err, nats.ErrAccountAuthExpired):
		return fmt.Sprintf("the credentials of %s have expired by the clock of the bus (%s); set the clock that is wrong, or %s",
			c.Name, clock, c.renewed())
	case c.NotBefore > now.Unix():
		return fmt.Sprintf("the credentials of %s are not valid before %s (%s); wait, or set the clock that is wrong",
			c.Name, at(c.NotBefore), clock)
	case system != "" && c.system() != "" && !strings.EqualFold(system, c.system()):
		return fmt.Sprintf("the credentials of %s are of another system, whose account is %s, and that of this bus is %s; %s",
			c.Name, strings.ToUpper(c.system()), system, c.renewed())
	case c.IssuedAt > now.Add(clockSkew).Unix():
		return fmt.Sprintf("the credentials of %s were made at %s, which is in the future (%s); set the clock that is wrong, or %s",
			c.Name, at(c.IssuedAt), clock, c.renewed())
	}
	ends := "do not expire"
	if c.Expires > 0 {
		ends = "expire at " + at(c.Expires)
	}
	return fmt.Sprintf("the credentials of %s, made at %s, were revoked or replaced, or are of another system, "+
		"or the clock of the bus is wrong (they %s; %s); the log of core says which; %s", c.Name, at(c.IssuedAt), ends, clock, c.renewed())
}

// renewed is how to get other credentials.
func (c claims) renewed() string {
	if slices.Contains(c.NATS.Tags, PartyTag) {
		return "get new ones: skandha plugins invite " + c.Name
	}
	return "give this process the key or the credentials of the system (skandha secrets writes them)"
}

// SystemTag begins the tag in a party's JWT that names the account of its system, in lower case.
const SystemTag = "system-"

// system is the account of the system that the credentials are for; empty if they do not say.
func (c claims) system() string {
	for _, t := range c.NATS.Tags {
		if account, ok := strings.CutPrefix(t, SystemTag); ok {
			return account
		}
	}
	return c.NATS.IssuerAccount
}

// shown is the token or JWT that the next attempt to connect shows; empty for other credentials, or if it cannot be
// read.
func (c Config) shown() string {
	var token string
	switch {
	case c.Credentials != nil:
		token, _ = c.Credentials.JWT()
	case c.CredsFile != "":
		token, _ = BearerOf(c.CredsFile)
	case c.Data != "" && c.InProcess == nil:
		token = finder{dir: c.Data, token: c.Token}.currentToken()
	default:
		token = c.Token
	}
	return token
}

// warnRefused logs that the server refuses this process again after it had been connected, once until it is
// connected again. It reports whether err is such a refusal.
func (b *Bus) warnRefused(err error) bool {
	if !isAuthError(err) {
		return false
	}
	if !b.refusal.Swap(true) {
		b.log.Warn("the bus refuses the credentials; trying again", "error", b.refused(err))
	}
	return true
}

// reconnectDelay is how long to wait once all servers were tried so often. A client that is refused slows down: it would
// fill the log of the server.
func (b *Bus) reconnectDelay(times int) time.Duration {
	wait := reconnectWait
	if b.refusal.Load() {
		wait = min(wait<<min(times, 6), refusedWait)
	}
	return wait + rand.N(reconnectJitter)
}

const (
	reconnectWait   = 100 * time.Millisecond
	reconnectJitter = 150 * time.Millisecond
	refusedWait     = 5 * time.Second
)
