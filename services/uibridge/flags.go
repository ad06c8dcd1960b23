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

// Flags are what a command line and the environment say; they go before the
// configuration file.
type Flags struct {
	File   string // configuration; empty: none
	Listen string // host:port
	// ListenName is what errors call Listen; default --listen or SKANDHA_UI_LISTEN.
	ListenName string
	URL        string // by which browsers reach the bridge
	// Port of loopback at which a container's is published; browsers reach the bridge
	// by it if no URL says otherwise. 0: none.
	Port int
}

// Config is the checked configuration that the flags ask for.
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

// Check reports what is wrong with the flags; each error names its flag.
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
