package access

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/hosts"
	"skandha.dev/services/internal/people"
	"skandha.dev/services/uibridge/contract"
)

// Owner is the name of the token that has all rights. One-time codes log in with it.
const Owner = "owner"

// The defaults.
const (
	DefaultCookie         = 7 * 24 * time.Hour
	DefaultRequests       = 100
	DefaultBurst          = 500
	DefaultInputs         = 240
	DefaultDecisions      = 240
	DefaultConnections    = 512
	DefaultAllConnections = 2048
	DefaultAnonymous      = 4096
	DefaultBody           = 8 << 20
)

// minToken is the minimum length of a token, in characters.
const minToken = 16

// unguessable is the length from which on a token cannot be guessed. A shorter one may have
// been made up by a person, so guesses of it are slowed.
const unguessable = 32

// Config configures access to the bridge.
type Config struct {
	URL     string        `yaml:"url"`     // browsers' URL, if not the listen address: scheme://host[:port]
	Hosts   []string      `yaml:"hosts"`   // host names without port, besides localhost, 127.0.0.1, ::1 and url's
	Origins []string      `yaml:"origins"` // of other pages that may use the bridge, each with its own token
	Proxies []string      `yaml:"proxies"` // addresses or CIDRs trusted for X-Forwarded-For and X-Forwarded-Proto
	Cookie  time.Duration `yaml:"cookie"`  // how long an unused browser stays logged in; default 168h
	// env:NAME, file:PATH or the token; default: generated, kept in the data directory
	Owner  string  `yaml:"owner"`
	Tokens []Token `yaml:"tokens"` // further tokens
	OIDC   OIDC    `yaml:"oidc"`   // logs people in with a provider of OpenID Connect
	Limits Limits  `yaml:"limits"`

	// People are those of the section people, which core reads, too.
	People people.Config `yaml:"-"`
}

// Token configures an access token.
type Token struct {
	Name    string           `yaml:"name"`    // an id; the holder writes on the bus as ui-<name>
	Token   string           `yaml:"token"`   // env:NAME, file:PATH or the secret itself
	Rights  []contract.Right `yaml:"rights"`  // default see, talk, approve
	Agents  []subject.Agent  `yaml:"agents"`  // default: all
	Expires Instant          `yaml:"expires"` // RFC 3339; default: never
}

// Instant is a time in a configuration file, in RFC 3339.
type Instant struct{ time.Time }

// UnmarshalYAML implements [yaml.Unmarshaler].
func (i *Instant) UnmarshalYAML(n *yaml.Node) (err error) {
	if i.Time, err = time.Parse(time.RFC3339, n.Value); err != nil {
		return fmt.Errorf("is %q, want a time such as 2030-01-01T00:00:00Z", n.Value)
	}
	return nil
}

// Limits bound the use by one token, or by all. 0 means the default.
type Limits struct {
	Requests float64 `yaml:"requests"` // per second and token; default 100
	Burst    int     `yaml:"burst"`    // requests at once; default 500
	Inputs   float64 `yaml:"inputs"`   // per minute and token; default 240, a quarter of them at once
	// Decisions are approvals, denials and cancels per minute and token. They do not count
	// as requests or inputs. Default 240, a quarter of them at once.
	Decisions float64 `yaml:"decisions"`
	// open requests of one token, streams and WebSockets included; default 512
	Connections    int   `yaml:"connections"`
	AllConnections int   `yaml:"all_connections"` // of all tokens together; default 2048
	Anonymous      int   `yaml:"anonymous"`       // connections without a login; default 4096
	Body           int64 `yaml:"body"`            // bytes of a request's body; default 8 MiB
}

func (l Limits) withDefaults() Limits {
	return Limits{
		Requests: cmp.Or(l.Requests, DefaultRequests), Burst: cmp.Or(l.Burst, DefaultBurst),
		Inputs:    cmp.Or(l.Inputs, DefaultInputs),
		Decisions: cmp.Or(l.Decisions, DefaultDecisions), Connections: cmp.Or(l.Connections, DefaultConnections),
		AllConnections: cmp.Or(l.AllConnections, DefaultAllConnections),
		Anonymous:      cmp.Or(l.Anonymous, DefaultAnonymous), Body: cmp.Or(l.Body, DefaultBody),
	}
}

func (c Config) withDefaults() Config {
	c.Cookie = cmp.Or(c.Cookie, DefaultCookie)
	c.Limits, c.OIDC = c.Limits.withDefaults(), c.OIDC.withDefaults()
	return c
}

// Validate reports all faults; each error names its field. [New] and [Config.CheckSecrets]
// read the secrets.
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.URL != "" {
		if err := hosts.CheckOrigin(c.URL); err != nil {
			bad("url: %w", err)
		}
	}
	for _, h := range c.Hosts {
		if err := hosts.Check(h); err != nil {
			bad("hosts: %w", err)
		}
	}
	for _, o := range c.Origins {
		if err := hosts.CheckOrigin(o); err != nil {
			bad("origins: %w", err)
		}
	}
	if _, err := parseProxies(c.Proxies); err != nil {
		bad("proxies: %w", err)
	}
	if c.Cookie < time.Minute || c.Cookie > 400*24*time.Hour {
		bad("cookie is %s, want 1m to 9600h", c.Cookie)
	}
	return errors.Join(append(errs, c.checkTokens(), c.checkPeople(), c.OIDC.validate(), c.Limits.validate())...)
}

func (l Limits) validate() error {
	var errs []error
	for _, f := range []struct {
		name     string
		is       float64
		from, to float64
	}{
		{"requests", l.Requests, 0.01, 1e6},
		{"burst", float64(l.Burst), 1, 1e6},
		{"inputs", l.Inputs, 0.01, 1e6},
		{"decisions", l.Decisions, 0.01, 1e6},
		{"connections", float64(l.Connections), 1, 1e5},
		{"all_connections", float64(l.AllConnections), 1, 1e5},
		{"anonymous", float64(l.Anonymous), 1, 1e5},
		{"body", float64(l.Body), 1 << 10, 256 << 20},
	} {
		if !(f.is >= f.from && f.is <= f.to) { // also false for NaN
			errs = append(errs, fmt.Errorf("limits.%s is %v, want %v to %v", f.name, f.is, f.from, f.to))
		}
	}
	return errors.Join(errs...)
}

func (c Config) checkTokens() error {
	var errs []error
	seen := map[string]bool{Owner: true}
	for name := range c.People { // a program is no person
		seen[name] = true
	}
	for i, t := range c.Tokens {
		bad := func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("tokens[%d].%w", i, fmt.Errorf(format, args...)))
		}
		_, err := subject.Parse[subject.Writer](string(writerOf(t.Name)))
		switch {
		case t.Name == Owner:
			bad("name: %s is reserved for the owner's token (see the field owner); choose another name", Owner)
		case t.Name == "" || err != nil:
			bad("name: %q: want up to 61 characters of A-Z a-z 0-9 _ -", t.Name)
		case seen[t.Name]:
			bad("name: duplicate %q; a token or a person has this name", t.Name)
		}
		seen[t.Name] = true
		if t.Token == "" {
			bad("token is empty; write env:NAME, file:PATH or the token")
		}
		for _, r := range t.Rights {
			if !slices.Contains(contract.AllRights(), r) {
				bad("rights: %q: want see, talk, approve or administer", r)
			}
		}
		for _, a := range t.Agents {
			if _, err := subject.Parse[subject.Agent](string(a)); err != nil {
				bad("agents: %w", err)
			}
		}
	}
	return errors.Join(errs...)
}

// writerOf returns the writer name of the token's holder on the bus.
func writerOf(token string) subject.Writer { return subject.Person(token) }

func parseProxies(list []string) (out []netip.Prefix, err error) {
	for _, s := range list {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			a, err := netip.ParseAddr(s)
			if err != nil {
				return nil, fmt.Errorf("%q: want an address or a CIDR, such as 10.0.0.0/8", s)
			}
			p = netip.PrefixFrom(a, a.BitLen())
		}
		out = append(out, p)
	}
	return out, nil
}

// hostOfURL returns the host name of the configured URL, without port.
func hostOfURL(s string) []string {
	u, err := url.Parse(s)
	if s == "" || err != nil {
		return nil
	}
	return []string{strings.ToLower(u.Hostname())}
}
