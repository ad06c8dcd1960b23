package uibridge

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strconv"

	"skandha.dev/services/internal/hosts"
)

// TokenVar is the environment variable that holds the owner's token.
const TokenVar = "SKANDHA_UI_TOKEN"

// Flags hold the command line's flags and the environment's variables. They override the
// configuration file.
type Flags struct {
	File   string // path of the configuration file; empty: none
	Listen string // host:port
	// ListenName is the name of Listen in errors; default --listen or SKANDHA_UI_LISTEN.
	ListenName string
	URL        string // the URL by which browsers reach the bridge
	// Port is the loopback port at which a container publishes the bridge. Browsers use it
	// if no URL is set. 0: none.
	Port int
}

// Config returns the checked configuration with the flags applied.
func (f Flags) Config() (Config, error) {
	c, err := ReadConfig(f.File)
	if err := errors.Join(err, f.Check()); err != nil {
		return Config{}, err
	}
	if f.Listen != "" {
		c.Listen = f.Listen
	}
	if f.URL != "" {
		c.URL = f.URL
	}
	if c.URL == "" && f.Port != 0 {
		c.URL = "http://127.0.0.1:" + strconv.Itoa(f.Port)
	}
	if c.Owner == "" && os.Getenv(TokenVar) != "" {
		c.Owner = "env:" + TokenVar
	}
	return c, c.Validate()
}

// Check validates the flags; each error names its flag.
func (f Flags) Check() error {
	var errs []error
	if f.Listen != "" {
		if err := hosts.CheckListen(f.Listen); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", cmp.Or(f.ListenName, "--listen or SKANDHA_UI_LISTEN"), err))
		}
	}
	if f.URL != "" {
		if err := hosts.CheckOrigin(f.URL); err != nil {
			errs = append(errs, fmt.Errorf("--url or SKANDHA_UI_URL: %w", err))
		}
	}
	if f.Port < 0 || f.Port > 65535 {
		errs = append(errs, fmt.Errorf("--port or SKANDHA_UI_PORT is %d, want 1 to 65535", f.Port))
	}
	return errors.Join(errs...)
}
