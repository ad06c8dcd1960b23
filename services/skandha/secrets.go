package main

import (
	"fmt"
	"path/filepath"

	"skandha.dev/services/internal/natsserver"
	"skandha.dev/services/internal/trust"
)

// secretsCmd writes the keys of a system of separate processes.
type secretsCmd struct {
	Dir   string `arg:"" default:"secrets" help:"Directory to write to. Keys that are there stay." placeholder:"DIR"`
	Store string `default:"/data/accounts" help:"Where the NATS server keeps what it knows of plugins and listeners." placeholder:"DIR"`
	Adopt string `help:"Only move what a NATS server has stored in this directory (its store_dir) without rights to where it finds it with the keys of the other directory. No server may run on it." placeholder:"DIR"`
}

// Run implements the command.
func (s *secretsCmd) Run() error {
	if s.Adopt != "" {
		return s.adopt()
	}
	written, err := trust.WriteFiles(s.Dir, s.Store)
	if err != nil {
		return fmt.Errorf("writing the keys: %w", err)
	}
	for _, f := range written {
		fmt.Println("wrote " + f)
	}
	if len(written) > 0 {
		fmt.Printf("Give each service its own NAME.key alone (SKANDHA_KEY), core also %s (SKANDHA_BUS_KEYS), the NATS server %s,\n"+
			"and those who run the system %s (SKANDHA_CREDS).\n", trust.KeysFile, trust.ServerFile, trust.CredsFile)
	}
	return nil
}

// adopt moves what the bus has stored to the account of the keys.
func (s *secretsCmd) adopt() error {
	a, err := trust.Read(filepath.Join(s.Dir, trust.KeysFile))
	if err != nil {
		return err
	}
	server, err := a.Server()
	if err != nil {
		return err
	}
	moved, err := natsserver.Adopt(s.Adopt, server.Account)
	if err != nil {
		return fmt.Errorf("adopting what the bus has stored: %w", err)
	}
	if moved {
		fmt.Println("what the bus has stored without rights is now in the account of the system")
	}
	return nil
}
