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

// envCmd prints what a plugin or a listener of another process needs to join.
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

// exportLine is the line of a shell that sets SKANDHA_NATS, and SKANDHA_DATA if the
// system has a data directory here. The token goes into the URL unless that has a user.
func exportLine(at, token, data string) (string, error) {
	u, err := url.Parse(at)
	if err != nil {
		return "", fmt.Errorf("the address of the bus is no URL: %w", errors.Unwrap(err)) // the whole would show a token
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

// quoted is s as one word of a shell.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
