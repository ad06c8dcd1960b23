package websocket

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/bounds"
	"skandha.dev/services/internal/secret"
	"skandha.dev/services/listener/contract"
)

// The defaults and limits.
const (
	// AtOnce is how many inputs of a connection may be in flight.
	AtOnce = 32

	minToken = 16
)

// Config of a listener.
type Config struct {
	Agent string `yaml:"agent" default:"main"`
	// of messages that name none; required unless choose_session is set
	Session       string   `yaml:"session"`
	ChooseSession bool     `yaml:"choose_session"` // a message may name its session
	SessionPrefix string   `yaml:"session_prefix"` // prefix of every session that a message names
	Tokens        []string `yaml:"tokens"`         // env:NAME, file:PATH or the token; any is accepted
	Insecure      bool     `yaml:"insecure"`       // accept connections without a token; only on loopback
	Origins       []string `yaml:"origins"`        // of pages, e.g. https://app.example.org; none: no page
	// bytes
	MaxMessage     int64 `yaml:"max_message" default:"300 KiB" min:"64" max:"2 MiB"`
	MaxConnections int   `yaml:"max_connections" default:"64" min:"1" max:"10000"`
	// of an acknowledgement by the bus
	Timeout time.Duration   `yaml:"timeout" default:"10s" min:"1s" max:"1m"`
	Mode    event.InputMode `yaml:"mode"` // queue or interrupt; default queue
}

func (c Config) withDefaults() Config { return bounds.Filled(c) }

// Validate reports everything that is wrong; each error names its field. The
// tokens themselves are read by [New] and [Config.CheckSecrets].
func (c Config) Validate() error {
	c = c.withDefaults()
	errs := []error{bounds.Check("", c)}
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
