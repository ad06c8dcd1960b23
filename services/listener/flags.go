package listener

import (
	"errors"
	"fmt"

	"skandha.dev/services/listener/stdio"
)

// Flags are the command line's settings: a configuration file, a listener of standard
// input, or both.
type Flags struct {
	File           string // configuration; empty: none
	Stdin          string // name of a listener of standard input; empty: none
	Agent, Session string // of it
	JSON, Acks     bool   // of it
}

// Config returns the validated configuration that the flags describe.
func (f Flags) Config() (c Config, err error) {
	switch {
	case f.File == "" && f.Stdin == "":
		return Config{}, errors.New("nothing to listen to: set --config FILE or --stdin NAME")
	case f.Stdin == "" && (f.Session != "" || f.JSON || f.Acks):
		return Config{}, errors.New("--session, --json and --acks require --stdin NAME")
	case f.File != "":
		if c, err = ReadConfig(f.File); err != nil {
			return Config{}, err
		}
	}
	if f.Stdin != "" {
		if len(c.Stdin) > 0 {
			return Config{}, fmt.Errorf("--stdin %s: the configuration also has a listener of standard input; remove one",
				f.Stdin)
		}
		c.Stdin = map[string]stdio.Config{f.Stdin: {Agent: f.Agent, Session: f.Session, JSON: f.JSON, Acks: f.Acks}}
		if err := c.Validate(); err != nil {
			return Config{}, fmt.Errorf("--stdin %s: %w", f.Stdin, err)
		}
	}
	return c, nil
}
