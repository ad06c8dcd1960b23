package capture

import (
	"errors"
	"fmt"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/bounds"
	"skandha.dev/services/internal/jsondoc"
	"skandha.dev/services/listener/contract"
)

// Start is whether a listener that nobody has switched is on.
type Start string

// The values of start.
const (
	StartOn  Start = "on" // default
	StartOff Start = "off"
)

// Config is the part of a configuration that cameras and microphones have in common.
type Config struct {
	Agent        string          `yaml:"agent" default:"main"`
	Session      string          `yaml:"session"`
	Mode         event.InputMode `yaml:"mode"`                                          // queue or interrupt; default queue
	TextTemplate string          `yaml:"text_template"`                                 // Go template of the text of inputs; default a sentence, or what was said
	Every        time.Duration   `yaml:"every" min:"0" max:"168h"`                      // at most one input in this time; others are dropped and counted; default 0, of a camera 30s
	Keep         time.Duration   `yaml:"keep" default:"24h" min:"1m" max:"8760h"`       // how long recordings are kept
	KeepFiles    int             `yaml:"keep_files" default:"500" min:"1" max:"100000"` // how many are kept
	Start        Start           `yaml:"start"`                                         // on (default) or off, until somebody switches it
	Stall        time.Duration   `yaml:"stall" default:"15s" min:"100ms" max:"10m"`     // how long the source may send nothing
}

// Ref is the session that receives the inputs.
func (c Config) Ref() subject.Ref {
	return subject.Ref{Agent: subject.Agent(c.Agent), Session: subject.Session(c.Session)}
}

// Validate reports everything that is wrong; each error names its field.
func (c Config) Validate() error {
	c = bounds.Filled(c)
	errs := []error{bounds.Check("", c)}
	if c.Session == "" {
		errs = append(errs, errors.New("session is empty; name the session that receives the inputs"))
	} else if err := (contract.Input{
		Agent: subject.Agent(c.Agent), Session: subject.Session(c.Session), Text: "x", Mode: c.Mode,
	}).Check(); err != nil {
		errs = append(errs, fmt.Errorf("agent, session or mode: %w", err))
	}
	if c.Start != "" && c.Start != StartOn && c.Start != StartOff {
		errs = append(errs, fmt.Errorf("start is %q, want on or off", c.Start))
	}
	_, err := jsondoc.ParseTemplate("text_template", c.TextTemplate)
	return errors.Join(append(errs, err)...)
}
