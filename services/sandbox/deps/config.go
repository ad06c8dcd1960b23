package deps

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"time"

	"skandha.dev/services/internal/bounds"
)

// MaxPackages is the maximum number of requirements of one set: the merged lists of several
// calls.
const MaxPackages = 128

// Config says where packages are from and how much of them is kept. The zero value selects
// pip's own index, and bounds for data analysis.
type Config struct {
	// Index is the package index (PEP 503), such as "https://packages.example.com/simple".
	// Empty: pip's own. Only this index is used, so that no name of a private
	// package is looked up elsewhere. A plain http index is trusted without
	// a certificate, since the operator chose it. A user name and password in it
	// are sent to that index only; packages cannot see them.
	Index string
	// Proxy is the HTTP proxy for the index, such as "http://proxy.example.com:3128".
	// Empty: none; the environment's proxy is ignored.
	Proxy string
	// Timeout bounds one installation; default 5 minutes.
	Timeout time.Duration `default:"5m" min:"1s"`
	// Installs bounds the concurrent installations; others wait. Default 4.
	Installs int `default:"4" min:"1"`
	// MaxBytes and MaxFiles bound a set; defaults 2 GiB and 200,000. During installation it
	// may use twice as much, including downloads.
	MaxBytes int64 `default:"2 GiB" min:"1 MiB"`
	MaxFiles int   `default:"200000" min:"100"`
	// MaxSets and MaxTotalBytes bound the sets that are kept: above them the least recently
	// used sets are removed. Defaults 64 and 16 GiB.
	MaxSets       int   `default:"64" min:"1"`
	MaxTotalBytes int64 `default:"16 GiB"`
	// Settle is how long a set is kept in any case after its last use, so that the caller has
	// time to start a sandbox. Default 1 minute.
	Settle time.Duration `default:"1m" min:"0"`
	// Remember is how long a failure is cached for the same requirements, so that the index
	// is not queried again immediately. Default 30 s.
	Remember time.Duration `default:"30s" min:"0"`
	// Log receives what is installed and removed; default slog.Default().
	Log *slog.Logger
}

func (c Config) withDefaults() Config {
	c = bounds.Filled(c)
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return c
}

// Validate reports every invalid field.
func (c Config) Validate() error {
	c = c.withDefaults()
	errs := []error{bounds.Check("", c)}
	if c.Index != "" {
		errs = append(errs, checkURL("index", c.Index))
	}
	if c.Proxy != "" {
		errs = append(errs, checkURL("proxy", c.Proxy))
	}
	if c.MaxTotalBytes < c.MaxBytes {
		errs = append(errs, fmt.Errorf("max_total_bytes is %d, want at least max_bytes (%d)", c.MaxTotalBytes, c.MaxBytes))
	}
	return errors.Join(errs...)
}

// checkURL accepts URLs that pip can use. Its errors do not repeat a URL, which may contain
// a password.
func checkURL(field, raw string) error {
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return fmt.Errorf("%s is not a URL; want one such as \"https://packages.example.com/simple\"", field)
	case u.Scheme != "https" && u.Scheme != "http":
		return fmt.Errorf("%s has scheme %q, want https or http", field, u.Scheme)
	case u.Hostname() == "":
		return fmt.Errorf("%s names no host", field)
	case u.RawQuery != "" || u.Fragment != "" || u.Opaque != "":
		return fmt.Errorf("%s has a query or a fragment, want only a host and a path", field)
	}
	return nil
}
