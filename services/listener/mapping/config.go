package mapping

import (
	"errors"
	"fmt"
	"math"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/bounds"
	"skandha.dev/services/internal/jsondoc"
	"skandha.dev/services/listener/contract"
)

// Config says which readings become inputs.
type Config struct {
	Agent         string `yaml:"agent" default:"main"`
	Session       string `yaml:"session"`        // the session that receives the inputs; or
	SessionLevel  int    `yaml:"session_level"`  // level of the reading's name that names it, from 1: 2 is front in house/front/window,
	SessionPrefix string `yaml:"session_prefix"` // which gets this prefix

	ValueField string        `yaml:"value_field"` // JSON pointer to the value, e.g. /temperature; default the whole text
	Above      *float64      `yaml:"above"`       // an input when the value rises above it
	Below      *float64      `yaml:"below"`       // an input when the value falls below it
	Hysteresis float64       `yaml:"hysteresis"`  // how far the value must come back before above or below count again
	OnChange   bool          `yaml:"on_change"`   // an input when the value differs from that of the last input
	Debounce   time.Duration `yaml:"debounce"`    // how long above, below or a new value must hold
	Every      time.Duration `yaml:"every"`       // at most one input in this time; others are dropped and counted
	Window     time.Duration `yaml:"window"`      // summarise the readings of this time into one input

	TextField    string          `yaml:"text_field"`                                   // JSON pointer to the text of the input; or
	TextTemplate string          `yaml:"text_template"`                                // Go template, e.g. "{{.name}} is {{.value}}"; default a sentence
	Mode         event.InputMode `yaml:"mode"`                                         // queue or interrupt; default queue
	MaxNames     int             `yaml:"max_names" default:"1000" min:"1" max:"10000"` // names whose state is kept; further ones are dropped
}

// maxPeriod bounds the durations of a rule.
const maxPeriod = 7 * 24 * time.Hour

// Validate reports everything that is wrong; each error names its field.
func (c Config) Validate() error {
	c = bounds.Filled(c)
	errs := []error{bounds.Check("", c), c.checkSession(), c.checkConditions(), c.checkText()}
	if err := (contract.Input{Agent: subject.Agent(c.Agent), Session: "s", Text: "x", Mode: c.Mode}).Check(); err != nil {
		errs = append(errs, fmt.Errorf("agent or mode: %w", err))
	}
	return errors.Join(errs...)
}

func (c Config) checkSession() error {
	switch {
	case (c.Session == "") == (c.SessionLevel == 0):
		return errors.New("session and session_level: set exactly one of them, the session or the level of the name that names it")
	case c.SessionLevel < 0:
		return fmt.Errorf("session_level is %d, want 1 or more", c.SessionLevel)
	case c.Session == "":
		if c.SessionPrefix != "" && !subject.Valid(c.SessionPrefix) {
			return fmt.Errorf("session_prefix: %q is not a valid id", c.SessionPrefix)
		}
		return nil
	case c.SessionPrefix != "":
		return errors.New("session_prefix requires session_level; remove it")
	}
	if _, err := subject.Parse[subject.Session](c.Session); err != nil {
		return fmt.Errorf("session: %w", err)
	}
	return nil
}

// crosses reports whether the rule has a threshold.
func (c Config) crosses() bool { return c.Above != nil || c.Below != nil }

func (c Config) checkConditions() error {
	var errs []error
	for name, d := range map[string]time.Duration{"debounce": c.Debounce, "every": c.Every, "window": c.Window} {
		if d < 0 || d > maxPeriod {
			errs = append(errs, fmt.Errorf("%s is %s, want 0 to %s", name, d, maxPeriod))
		}
	}
	for name, limit := range map[string]*float64{"above": c.Above, "below": c.Below, "hysteresis": &c.Hysteresis} {
		if limit != nil && (math.IsNaN(*limit) || math.IsInf(*limit, 0)) {
			errs = append(errs, fmt.Errorf("%s is %v, want a finite number", name, *limit))
		}
	}
	switch {
	case c.Hysteresis < 0:
		errs = append(errs, fmt.Errorf("hysteresis is %v, want 0 or more", c.Hysteresis))
	case c.Hysteresis > 0 && !c.crosses():
		errs = append(errs, errors.New("hysteresis requires above or below; remove it"))
	case c.Above != nil && c.Below != nil && *c.Below+c.Hysteresis > *c.Above-c.Hysteresis:
		errs = append(errs, errors.New("below and above leave no band between them after the hysteresis; move them apart"))
	}
	switch {
	case c.OnChange && c.crosses():
		errs = append(errs, errors.New("on_change and above or below are both set; remove one of them"))
	case c.Window > 0 && (c.OnChange || c.Debounce > 0 || c.Every > 0):
		errs = append(errs, errors.New("window takes no on_change, debounce or every; remove them"))
	case c.Debounce > 0 && !c.OnChange && !c.crosses():
		errs = append(errs, errors.New("debounce requires on_change, above or below; remove it"))
	}
	return errors.Join(errs...)
}

func (c Config) checkText() error {
	if c.TextField != "" && c.TextTemplate != "" {
		return errors.New("text_field and text_template are both set; remove one of them")
	}
	if c.TextField != "" && c.Window > 0 {
		return errors.New("text_field and window are both set; use text_template")
	}
	_, err := jsondoc.ParseTemplate("text_template", c.TextTemplate)
	return errors.Join(err, jsondoc.CheckPointer("text_field", c.TextField), jsondoc.CheckPointer("value_field", c.ValueField))
}
