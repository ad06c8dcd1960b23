package webhook

import (
	"errors"
	"fmt"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/bounds"
	"skandha.dev/services/internal/jsondoc"
	"skandha.dev/services/internal/secret"
	"skandha.dev/services/internal/signature"
	"skandha.dev/services/listener/contract"
)

// The defaults and limits.
const (
	// Tolerance is how far a timestamp may be off.
	Tolerance = 5 * time.Minute
)

// Config of a listener.
type Config struct {
	Agent         string `yaml:"agent" default:"main"`
	Session       string `yaml:"session"`        // the session that receives it; or
	SessionField  string `yaml:"session_field"`  // JSON pointer to its name in the body, e.g. /repository/name,
	SessionPrefix string `yaml:"session_prefix"` // which gets this prefix
	TextField     string `yaml:"text_field"`     // JSON pointer to the text; default /text, or
	// Go template over the body, e.g. "{{.action}}: {{.issue.title}}"
	TextTemplate string   `yaml:"text_template"`
	Secrets      []string `yaml:"secrets"`  // env:NAME, file:PATH or whsec_…; any may match
	Insecure     bool     `yaml:"insecure"` // accept requests without a signature; only on loopback
	// bytes
	MaxBody int64 `yaml:"max_body" default:"2 MiB" min:"1" max:"4 MiB"`
	// of an acknowledgement by the bus
	Timeout time.Duration   `yaml:"timeout" default:"10s" min:"1s" max:"50s"`
	Mode    event.InputMode `yaml:"mode"` // queue or interrupt; default queue
}

func (c Config) withDefaults() Config {
	c = bounds.Filled(c)
	if c.TextField == "" && c.TextTemplate == "" {
		c.TextField = "/text"
	}
	return c
}

// Validate reports everything that is wrong; each error names its field. The
// secrets themselves are read by [New] and [Config.CheckSecrets].
func (c Config) Validate() error {
	c = c.withDefaults()
	errs := []error{c.checkSession(), c.checkText(), bounds.Check("", c)}
	switch {
	case c.Insecure && len(c.Secrets) > 0:
		errs = append(errs, errors.New("insecure and secrets are both set; remove one of them"))
	case !c.Insecure && len(c.Secrets) == 0:
		errs = append(errs,
			errors.New("secrets is empty; name one (env:NAME or file:PATH), or set insecure: true on loopback"))
	}
	if err := (contract.Input{Agent: subject.Agent(c.Agent), Session: "s", Text: "x", Mode: c.Mode}).Check(); err != nil {
		errs = append(errs, fmt.Errorf("agent or mode: %w", err))
	}
	return errors.Join(errs...)
}

func (c Config) checkSession() error {
	switch {
	case (c.Session == "") == (c.SessionField == ""):
		return errors.New("session and session_field: set exactly one of them, the session or where the body names it")
	case c.Session != "":
		if _, err := subject.Parse[subject.Session](c.Session); err != nil {
			return fmt.Errorf("session: %w", err)
		}
		if c.SessionPrefix != "" {
			return errors.New("session_prefix requires session_field; remove it")
		}
	case c.SessionPrefix != "" && !subject.Valid(c.SessionPrefix):
		return fmt.Errorf("session_prefix: %q is not a valid id", c.SessionPrefix)
	}
	return jsondoc.CheckPointer("session_field", c.SessionField)
}

func (c Config) checkText() error {
	if c.TextField != "" && c.TextTemplate != "" {
		return errors.New("text_field and text_template are both set; remove one of them")
	}
	if _, err := c.template(); err != nil {
		return err
	}
	return jsondoc.CheckPointer("text_field", c.TextField)
}

func (c Config) template() (*jsondoc.Template, error) {
	return jsondoc.ParseTemplate("text_template", c.TextTemplate)
}

// CheckSecrets reads the secrets and reports everything that is wrong with them.
func (c Config) CheckSecrets() error {
	_, err := c.keys()
	return err
}

// keys reads the secrets.
func (c Config) keys() ([][]byte, error) {
	var out [][]byte
	var errs []error
	for i, name := range c.Secrets {
		s, err := secret.Read(name)
		if err != nil {
			errs = append(errs, fmt.Errorf("secrets[%d]: %w", i, err))
			continue
		}
		key, err := signature.Key(s)
		if err != nil {
			errs = append(errs, fmt.Errorf("secrets[%d]: %w", i, err))
		}
		out = append(out, key)
	}
	return out, errors.Join(errs...)
}
