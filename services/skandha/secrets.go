package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"skandha.dev/services/core"
	"skandha.dev/services/internal/natsserver"
	"skandha.dev/services/internal/trust"
)

// secretsCmd writes the keys of a system of separate processes.
type secretsCmd struct {
	Dir      string `arg:"" default:"secrets" help:"Directory to write to. Keys that are there stay." placeholder:"DIR"`
	Store    string `default:"/data/accounts" help:"Where the NATS server keeps what it knows of plugins and listeners." placeholder:"DIR"`
	Beside   string `help:"Make the keys of one more system on the NATS server of the keys in this directory. The two see nothing of each other. The server does not start again: --announce." placeholder:"DIR"`
	DiskGiB  int64  `name:"disk-gib" help:"How much the system may store on the NATS server. Default: as before, at first whatever the server has." placeholder:"N"`
	Rotate   bool   `help:"Give each service a new key. The previous keys stay valid until --retire."`
	Retire   bool   `help:"End the keys that were valid before --rotate."`
	Announce bool   `help:"Inform the running NATS server (--nats) of the keys, so that it need not start again."`
	Adopt    string `help:"Only move what a NATS server has stored in this directory (its store_dir) without rights to where it finds it with the keys of the other directory. No server may run on it." placeholder:"DIR"`
}

// Run implements the command.
func (s *secretsCmd) Run(ctx context.Context, g *globals) error {
	switch {
	case s.Adopt != "":
		return s.adopt()
	case s.DiskGiB < 0:
		return fmt.Errorf("--disk-gib is %d, want 1 or more", s.DiskGiB)
	case s.Announce && g.NATS == "":
		return errors.New("--announce needs the address of the NATS server: --nats (SKANDHA_NATS)")
	}
	written, err := trust.WriteFiles(s.Dir, trust.Options{
		Store: s.Store, Beside: s.Beside, Disk: s.DiskGiB << 30, Rotate: s.Rotate, Retire: s.Retire,
	})
	if err != nil {
		return fmt.Errorf("writing the keys: %w", err)
	}
	for _, f := range written {
		fmt.Println("wrote " + f)
	}
	keys := filepath.Join(s.Dir, trust.KeysFile)
	if s.Announce {
		if err := (core.Keys{File: keys, URL: g.NATS, CA: g.CA}).Announce(ctx, g.logger()); err != nil {
			return fmt.Errorf("informing the NATS server: %w", err)
		}
		fmt.Println("the NATS server was informed")
	}
	switch _, err := os.Stat(filepath.Join(s.Dir, trust.ServerFile)); {
	case len(written) == 0:
	case err == nil:
		fmt.Printf("Give each service its own NAME.key alone (SKANDHA_KEY), core also %s (SKANDHA_BUS_KEYS), the NATS server %s,\n"+
			"and those who run the system %s (SKANDHA_CREDS).\n", trust.KeysFile, trust.ServerFile, trust.CredsFile)
	default:
		fmt.Printf("Give each service its own NAME.key alone (SKANDHA_KEY), core also %s (SKANDHA_BUS_KEYS),\n"+
			"and those who run the system %s (SKANDHA_CREDS).\n", trust.KeysFile, trust.CredsFile)
	}
	if len(written) > 0 && !s.Announce && (s.Beside != "" || s.Rotate || s.Retire || s.DiskGiB != 0) {
		fmt.Printf("The NATS server does not know it yet: skandha secrets %s --announce --nats URL\n", shellQuote(s.Dir))
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
