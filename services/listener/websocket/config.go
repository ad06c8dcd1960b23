package websocket

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/secret"
	"skandha.dev/services/listener/contract"
)

// The defaults and limits.
const (
	DefaultMaxMessage     = 300 << 10
	LargestMessage        = 2 << 20
	DefaultMaxConnections = 64
	DefaultTimeout        = 10 * time.Second
	// AtOnce is how many inputs of a connection may be in flight.
	AtOnce = 32

	minToken = 16
)

// Config of a listener.
type Config struct {
	Agent string `yaml:"agent"` // default main
	// of messages that name none; required unless choose_session is set
	Session        string          `yaml:"session"`
	ChooseSession  bool            `yaml:"choose_session"`  // a message may name its session
	SessionPrefix  string          `yaml:"session_prefix"`  // prefix of every session that a message names
	Tokens         []string        `yaml:"tokens"`          // env:NAME, file:PATH or the token; any is accepted
	Insecure       bool            `yaml:"insecure"`        // accept connections without a token; only on loopback
	Origins        []string        `yaml:"origins"`         // of pages, e.g. https://app.example.org; none: no page
	MaxMessage     int64           `yaml:"max_message"`     // bytes; default 300 KiB, at most 2 MiB
	MaxConnections int             `yaml:"max_connections"` // default 64
	Timeout        time.Duration   `yaml:"timeout"`         // of an acknowledgement by the bus; default 10s
	Mode           event.InputMode `yaml:"mode"`            // queue or interrupt; default queue
}

func (c Config) withDefaults() Config {
	c.Agent = cmp.Or(c.Agent, "main")
	c.MaxMessage = cmp.Or(c.MaxMessage, DefaultMaxMessage)
	c.MaxConnections = cmp.Or(c.MaxConnections, DefaultMaxConnections)
	c.Timeout = cmp.Or(c.Timeout, DefaultTimeout)
	return c
}

// Validate reports everything that is wrong; each error names its field. The
// tokens themselves are read by [New] and [Config.CheckSecrets].
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs []error
	switch {
	case c.Session == "" && !c.ChooseSession:
		errs = append(errs,
			errors.New("session is empty; name the session that receives the inputs, or set choose_session: true"))
	case c.Session != "" && !subject.Valid(c.Session):
		errs = append(errs, fmt.Errorf("session: %q is not a valid id", c.Session))
	case c.SessionPrefix != "" && (!c.ChooseSession || !subject.Valid(c.SessionPrefix)):
		errs = append(errs, fmt.Errorf("session_prefix: %q: want an id, and choose_session: true", c.SessionPrefix))
	}
	switch {
	case c.Insecure && len(c.Tokens) > 0:
		errs = append(errs, errors.New("insecure and tokens are both set; remove one of them"))
	case !c.Insecure && len(c.Tokens) == 0:
		errs = append(errs,
			errors.New("tokens is empty; name one (env:NAME or file:PATH), or set insecure: true on loopback"))
	}
	for _, o := range c.Origins {
		if u, err := url.Parse(o); err != nil || u.Host == "" || u.Scheme+"://"+u.Host != o || strings.Contains(o, "*") {
			errs = append(errs,
				fmt.Errorf("origins: %q: want scheme://host[:port] as browsers send it, such as https://app.example.org", o))
		}
	}
	if c.MaxMessage < 64 || c.MaxMessage > LargestMessage {
		errs = append(errs, fmt.Errorf("max_message is %d, want 64 to %d bytes", c.MaxMessage, LargestMessage))
	}
	if c.MaxConnections < 1 || c.MaxConnections > 10_000 {
		errs = append(errs, fmt.Errorf("max_connections is %d, want 1 to 10000", c.MaxConnections))
	}
	if c.Timeout < time.Second || c.Timeout > time.Minute {
		errs = append(errs, fmt.Errorf("timeout is %s, want 1s to 1m", c.Timeout))
	}
	if err := (contract.Input{Agent: subject.Agent(c.Agent), Session: "s", Text: "x", Mode: c.Mode}).Check(); err != nil {
		errs = append(errs, fmt.Errorf("agent or mode: %w", err))
	}
	return errors.Join(errs...)
}

// CheckSecrets reads the tokens and reports everything that is wrong with them.
func (c Config) CheckSecrets() error {
	_, err := c.readTokens()
	return err
}

// readTokens reads the tokens and returns their hashes, which all have the same length.
func (c Config) readTokens() ([][sha256.Size]byte, error) {
	var out [][sha256.Size]byte
	var errs []error
	for i, name := range c.Tokens {
		t, err := secret.Read(name)
		if err != nil {
			errs = append(errs, fmt.Errorf("tokens[%d]: %w", i, err))
			continue
		}
		// The characters that are also allowed in a subprotocol.
		if len(t) < minToken || strings.Trim(t, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~") != "" {
			errs = append(errs, fmt.Errorf("tokens[%d]: want %d characters or more of A-Z a-z 0-9 - . _ ~", i, minToken))
		}
		out = append(out, sha256.Sum256([]byte(t)))
	}
	return out, errors.Join(errs...)
}
