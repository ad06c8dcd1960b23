package bwrap

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"

	"skandha.dev/services/sandbox/driver"
)

// Config configures a Driver.
type Config struct {
	// Dir holds package sets and the leases of services; services with the same Dir share
	// sets and reap for each other. It is created if it does not exist. Required.
	Dir string
	// Bwrap is the program; default: bwrap on PATH.
	Bwrap string
	// Python is the interpreter of the sandboxes; default: /usr/bin/python3, else the
	// first python3 on PATH that is new enough.
	Python string
	// ForUntrusted reports that sandboxes are for tenants who do not trust each other. New
	// refuses that unless AcceptWeaker is true.
	ForUntrusted bool
	// AcceptWeaker accepts that bubblewrap isolates less strongly than containers.
	AcceptWeaker bool
	// FirstUID and UIDs are the range of user ids for sandboxes when the service is root.
	// Nothing else may use them. Default: 4096 from 2000000000 on.
	FirstUID, UIDs uint32
	// NoCgroups disables the use of cgroups; sandboxes are then bounded per process.
	NoCgroups bool
	// Kernel is the directory of kernel settings. Default: /proc/sys.
	Kernel string
	// Log receives problems that are not returned as errors; nil: the default logger.
	Log *slog.Logger
}

// Default range of user ids: above what systemd and container engines hand out,
// below where 32-bit ids turn negative.
const (
	defaultFirstUID = 2_000_000_000
	defaultUIDs     = 4096
)

var errWeaker = errors.New("bwrap is not for tenants who do not trust each other: " +
	"sandboxes share the host's kernel and see its /usr, they have no separate image, " +
	"only kernel namespaces and seccomp separate them, and limits may be missing; use Docker with gVisor, " +
	"or set accept_weaker to take the risk")

// complete fills in the defaults and reports every invalid field.
func (c Config) complete() (Config, error) {
	var errs []error
	if c.ForUntrusted && !c.AcceptWeaker {
		errs = append(errs, errWeaker)
	}
	if c.Dir == "" {
		errs = append(errs, errors.New("dir is empty, want a directory for package sets"))
	}
	c.FirstUID = cmp.Or(c.FirstUID, defaultFirstUID)
	c.UIDs = cmp.Or(c.UIDs, defaultUIDs)
	if c.FirstUID < 65536 || uint64(c.FirstUID)+uint64(c.UIDs) > 1<<31 {
		errs = append(errs, fmt.Errorf("first_uid %d and uids %d: want a range from 65536 to 2147483647", c.FirstUID, c.UIDs))
	}
	c.Kernel = cmp.Or(c.Kernel, "/proc/sys")
	c.Log = cmp.Or(c.Log, slog.Default())
	c.Log = c.Log.With("driver", "bwrap")
	if len(errs) > 0 {
		return c, fmt.Errorf("bwrap: %w", errors.Join(errs...))
	}
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return c, fmt.Errorf("bwrap: dir %q: %w", c.Dir, err)
	}
	c.Dir = dir
	return c, nil
}

func unavailable(format string, args ...any) error {
	return fmt.Errorf("%w: %w", driver.ErrUnavailable, fmt.Errorf(format, args...))
}
