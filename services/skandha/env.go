package main

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"skandha.dev/services/skandha/system"
)

// envCmd prints the environment with which a plugin or listener in another process joins.
type envCmd struct{}

// Run implements the command.
func (envCmd) Run(g *globals) error {
	at, token, data := g.NATS, g.Token, ""
	if at == "" {
		run, err := system.Running(g.Data)
		if errors.Is(err, os.ErrNotExist) {
			return g.noSystem()
		}
		if err != nil {
			return err
		}
		at, token = run.URL, run.Token
		if data, err = filepath.Abs(g.Data); err != nil {
			return err
		}
	}
	line, err := exportLine(at, token, data)
	if err != nil {
		return err
	}
	_, err = fmt.Println(line)
	return err
}

// exportLine returns a shell command that sets SKANDHA_NATS, and SKANDHA_DATA if the
// system has a data directory here. It adds the token to the URL unless the URL has a
// user.
func exportLine(at, token, data string) (string, error) {
	u, err := url.Parse(at)
	if err != nil {
		return "", fmt.Errorf("invalid URL of the bus: %w", errors.Unwrap(err)) // the whole error could show a token
	}
	if token != "" && u.User == nil {
		u.User = url.User(token)
	}
	line := "export SKANDHA_NATS=" + quoted(u.String())
	if data != "" {
		line += " SKANDHA_DATA=" + quoted(data)
	}
	return line, nil
}

// quoted returns s as one word of a shell command.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
