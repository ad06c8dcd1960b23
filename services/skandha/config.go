package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"

	"skandha.dev/services/core"
	"skandha.dev/services/skandha/system"
)

// configCmd checks configuration files.
type configCmd struct {
	Check configCheckCmd `cmd:"" help:"Print all errors in a configuration file, with their lines. Exits 0 if there are none, else 1."`
}

type configCheckCmd struct {
	File string `arg:"" optional:"" type:"existingfile" placeholder:"FILE" help:"Configuration file (YAML). Default: that of --config."`
}

// Run implements the command.
func (c *configCheckCmd) Run(g *globals) error {
	file := cmp.Or(c.File, g.Config)
	if file == "" {
		return errors.New("no file to check; name one, or set --config or SKANDHA_CONFIG")
	}
	err := system.CheckConfig(file, g.UI != "off")
	if err == nil {
		err = errors.Join(core.CheckGuides(file), core.CheckNotify(file))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return exitFailed
	}
	_, err = fmt.Println(file + ": ok")
	return err
}
