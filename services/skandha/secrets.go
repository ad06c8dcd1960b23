package main

import (
	"fmt"

	"skandha.dev/services/internal/trust"
)

// secretsCmd writes the keys of a system of separate processes.
type secretsCmd struct {
	Dir   string `arg:"" default:"secrets" help:"Directory to write to. Keys that are there stay." placeholder:"DIR"`
	Store string `default:"/data/accounts" help:"Where the NATS server keeps what it knows of plugins and listeners." placeholder:"DIR"`
}

// Run implements the command.
func (s *secretsCmd) Run() error {
	written, err := trust.WriteFiles(s.Dir, s.Store)
	if err != nil {
		return fmt.Errorf("writing the keys: %w", err)
	}
	for _, f := range written {
		fmt.Println("wrote " + f)
	}
	fmt.Printf("Give each service its own NAME.key alone (SKANDHA_KEY), core also %s (SKANDHA_BUS_KEYS), and the NATS server %s.\n",
		trust.KeysFile, trust.ServerFile)
	return nil
}
