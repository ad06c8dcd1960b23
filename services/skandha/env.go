package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"skandha.dev/pkg/bus"
	"skandha.dev/services/internal/rights"
	"skandha.dev/services/skandha/system"
)

// envCmd prints the environment with which a plugin or listener in another process joins.
type envCmd struct {
	Service string `placeholder:"NAME" help:"Print the environment of a process of Skandha beside this system instead, such as listener, toolrunner or uibridge. Its key is written to --data."`

	Name string `arg:"" optional:"" help:"Name of the plugin or listener that joins. It gets credentials for that name alone, with which it may do whatever a plugin or listener may, or with any of the flags below only what these grant. Default: the environment is that of the people who run the system, who cannot act as a plugin."`
	charterFlags
}

// Run implements the command.
func (e *envCmd) Run(ctx context.Context, g *globals) error {
	at, data, err := g.bus()
	if err != nil {
		return err
	}
	key, err := e.key(data)
	if err != nil {
		return err
	}
	token := ""
	if key == "" {
		if token, err = e.token(ctx, g); err != nil {
			return err
		}
	}
	line, err := exportLine(at, token, data)
	if err != nil {
		return err
	}
	if key != "" {
		line += " SKANDHA_KEY=" + quoted(key)
	}
	_, err = fmt.Println(line)
	return err
}

// key returns the file with the key of the service; none if no service is named, or the bus has no rights.
func (e *envCmd) key(data string) (string, error) {
	switch {
	case e.Service == "":
		return "", nil
	case e.Name != "":
		return "", errors.New("--service names a process of Skandha, NAME a plugin or listener; give one of them")
	case data == "":
		return "", errors.New("--service needs the data directory of a running system (--data); " +
			"the keys of a system of separate processes are made by skandha secrets")
	}
	return system.ServiceKey(data, e.Service)
}

// token returns what the environment's holder shows to the bus.
func (e *envCmd) token(ctx context.Context, g *globals) (string, error) {
	if e.Name != "" {
		var charter *rights.Charter
		if c := e.charter(e.Name); c.Grants() {
			charter = &c
		}
		token, ok, err := joined(ctx, g, e.Name, charter)
		if ok || err != nil {
			return token, err
		}
	}
	if g.NATS != "" {
		if u, err := url.Parse(g.NATS); err == nil && u.User != nil {
			return u.User.Username(), nil
		}
		if g.Creds != "" {
			return bus.BearerOf(g.Creds)
		}
		return g.Token, nil
	}
	run, err := system.Running(g.Data)
	return run.Token, err
}

// exportLine returns a shell command that sets SKANDHA_NATS, and SKANDHA_DATA if the
// system has a data directory here. It adds the token to the URL unless the URL has a
// user.
func exportLine(at, token, data string) (string, error) {
	at, err := withToken(at, token)
	if err != nil {
		return "", err
	}
	line := "export SKANDHA_NATS=" + quoted(at)
	if data != "" {
		line += " SKANDHA_DATA=" + quoted(data)
	}
	return line, nil
}

// quoted returns s as one word of a shell command.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
