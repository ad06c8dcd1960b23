package core

import (
	"cmp"
	"errors"
	"fmt"

	"skandha.dev/pkg/bus"
)

// Flags are what a command line and the environment say; they go before the
// configuration file.
type Flags struct {
	File     string // configuration; empty: none
	Replicas int    // copies of each stream; 0: as the configuration says
}

// Config is the checked configuration that the flags ask for.
func (f Flags) Config() (Config, error) {
	c, err := ReadConfig(f.File)
	if wrong := (bus.StreamsConfig{Replicas: f.Replicas}).Validate(); wrong != nil {
		err = errors.Join(err, fmt.Errorf("--stream-replicas or SKANDHA_STREAM_REPLICAS: %w", wrong))
	}
	c.Streams.Replicas = cmp.Or(f.Replicas, c.Streams.Replicas)
	return c, err
}
