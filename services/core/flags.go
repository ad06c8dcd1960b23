package core

import (
	"cmp"
	"errors"
	"fmt"

	"skandha.dev/services/internal/journal"
)

// Flags holds the settings of the command line and the environment. They override the
// configuration file.
type Flags struct {
	File     string // path of the configuration; empty: none
	Replicas int    // copies of each stream; 0: use the configuration
}

// Config reads and checks the configuration and applies the flags to it.
func (f Flags) Config() (Config, error) {
	c, err := ReadConfig(f.File)
	if wrong := (journal.StreamsConfig{Replicas: f.Replicas}).Validate(); wrong != nil {
		err = errors.Join(err, fmt.Errorf("--stream-replicas or SKANDHA_STREAM_REPLICAS: %w", wrong))
	}
	c.Streams.Replicas = cmp.Or(f.Replicas, c.Streams.Replicas)
	return c, err
}
