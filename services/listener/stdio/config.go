package stdio

import (
	"cmp"
	"errors"
	"fmt"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/listener/contract"
)

// Config of a listener.
type Config struct {
	Agent   string          `yaml:"agent"`   // default main
	Session string          `yaml:"session"` // default: the listener's name
	JSON    bool            `yaml:"json"`    // each line is a JSON object instead of the text
	Acks    bool            `yaml:"acks"`    // write the result of each line to standard output
	Mode    event.InputMode `yaml:"mode"`    // queue or interrupt; default queue
}

func (c Config) withDefaults(name subject.Writer) Config {
	c.Agent = cmp.Or(c.Agent, "main")
	c.Session = cmp.Or(c.Session, string(name))
	return c
}

// Validate reports everything that is wrong; each error names its field.
func (c Config) Validate(name subject.Writer) error {
	c = c.withDefaults(name)
	var errs []error
	if _, err := subject.ParseRef(c.Agent, c.Session); err != nil {
		errs = append(errs, fmt.Errorf("agent or session: %w", err))
	}
	if err := (contract.Input{Agent: "a", Session: "s", Text: "x", Mode: c.Mode}).Check(); err != nil {
		errs = append(errs, fmt.Errorf("mode: %w", err))
	}
	return errors.Join(errs...)
}
