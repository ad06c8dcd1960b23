package main

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"skandha.dev/pkg/bus"
	"skandha.dev/services/skandha/system"
)

// envCmd prints the environment with which a plugin or listener in another process joins.
type envCmd struct {
	Name string `arg:"" optional:"" help:"Name of the plugin or listener that joins. It gets credentials for that name alone. Default: the environment is that of the people who run the system, who cannot act as a plugin."`
}

// Run implements the command.
func (e *envCmd) Run(ctx context.Context, g *globals) error {
	at, data, err := g.bus()
	if err != nil {
		return err
	}
	token, err := e.token(ctx, g)
	if err != nil {
		return err
	}
	line, err := exportLine(at, token, data)
	if err != nil {
		return err
	}
	_, err = fmt.Println(line)
	return err
}

// token returns what the environment's holder shows to the bus.
func (e *envCmd) token(ctx context.Context, g *globals) (string, error) {
	if e.Name != "" {
		token, ok, err := joined(ctx, g, e.Name)
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
