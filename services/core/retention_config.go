package core

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"skandha.dev/services/core/retention"
	"skandha.dev/services/core/shell"
	"skandha.dev/services/internal/archive"
)

// RetentionConfig says what leaves the log, and where it goes. Without a limit nothing does.
type RetentionConfig struct {
	// Archive is where it goes: a directory, or s3://BUCKET/PREFIX; none: it is deleted. Default of skandha up: archive in
	// the data directory. A core without it removes only the content of deleted sessions.
	Archive string        `yaml:"archive"`
	Age     time.Duration `yaml:"age"`   // turns that ended longer ago leave; 0: no limit
	Turns   int           `yaml:"turns"` // how many turns of each session stay, the latest; 0: no limit
	Bytes   int64         `yaml:"bytes"` // how many bytes of each session stay, the latest; 0: no limit
	// Fill is how full the log may be, in percent of streams.max_bytes, before the oldest turns leave. Default 70; 0: it
	// does not matter.
	Fill  *int          `yaml:"fill"`
	Every time.Duration `yaml:"every"` // between two runs; default 1h
	// Undelete is how long a deleted session can be brought back, before its content is removed from the log and the
	// archive. Default 168h.
	Undelete *time.Duration `yaml:"undelete"`
}

const defaultUndelete = 7 * 24 * time.Hour

// DefaultFill is how full the log may be before the oldest turns leave, in percent.
const DefaultFill = 70

// NoArchive is the archive of a system that deletes what leaves the log.
const NoArchive = "none"

func (c RetentionConfig) build() (out shell.Retention, err error) {
	fill := DefaultFill
	set(&fill, c.Fill)
	keep := retention.Keep{Age: c.Age, Turns: c.Turns, Bytes: c.Bytes, Fill: fill}
	errs := []error{keep.Validate()}
	if c.Every != 0 && c.Every < time.Second {
		errs = append(errs, fmt.Errorf("retention.every is %v, want 1s or more", c.Every))
	}
	out.Every, out.Undelete = c.Every, defaultUndelete
	set(&out.Undelete, c.Undelete)
	if out.Undelete < 0 {
		errs = append(errs, fmt.Errorf("retention.undelete is %v, want a duration, or 0", out.Undelete))
	}
	if c.Archive == "" { // only the content of deleted sessions is removed
		return out, errors.Join(errs...)
	}
	out.Keep = keep
	if c.Archive != NoArchive {
		errs = append(errs, archive.Check(c.Archive))
		out.Archive = func(ctx context.Context) (archive.Store, error) {
			return archive.Open(ctx, strings.TrimSpace(c.Archive))
		}
	}
	return out, errors.Join(errs...)
}

// missing returns an error if something is to leave the log and the configuration does not say where to.
func (c RetentionConfig) missing() error {
	if c.Archive == "" && (c.Age > 0 || c.Turns > 0 || c.Bytes > 0 || c.Fill != nil && *c.Fill > 0) {
		return errors.New("retention.archive is missing: name a directory, or s3://BUCKET/PREFIX, " +
			"or none to delete what leaves the log")
	}
	return nil
}
