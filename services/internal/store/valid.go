package store

import (
	"fmt"
	"math"
	"time"
)

// Limits, the same for every implementation.
const (
	MaxRev      uint64 = math.MaxInt64 // largest revision and mark: SQL has no larger integer
	MaxDelta    int64  = 1 << 40       // largest number in a ToolDelta, so that sums stay in range
	MaxData            = 64 << 20      // bytes of Snapshot.Data
	DefaultPage        = 50
	MaxPage            = 1000
)

// maxMicros is the largest time in microseconds that is exact in a float64, which
// is what Redis sorts by. It lies in the year 2255.
const maxMicros = 1 << 53

// Validate reports the first reason why k can't be stored, as ErrInvalid.
func (k Key) Validate() error {
	switch {
	case k.Agent == "":
		return fmt.Errorf("%w: empty agent id", ErrInvalid)
	case k.Session == "":
		return fmt.Errorf("%w: empty session id", ErrInvalid)
	}
	return nil
}

// Validate reports the first reason why s can't be stored, as ErrInvalid.
func (s Snapshot) Validate() error {
	switch {
	case s.FoldVersion < 0:
		return fmt.Errorf("%w: fold version %d", ErrInvalid, s.FoldVersion)
	case s.Turns < 0:
		return fmt.Errorf("%w: %d turns", ErrInvalid, s.Turns)
	case s.Commits > MaxRev:
		return fmt.Errorf("%w: %d commits", ErrInvalid, s.Commits)
	case len(s.Data) > MaxData:
		return fmt.Errorf("%w: %d bytes of state, at most %d", ErrInvalid, len(s.Data), MaxData)
	}
	if err := validateRev(s.Rev); err != nil {
		return err
	}
	return validateTime(s.Updated)
}

// Validate reports the first reason why d can't be stored, as ErrInvalid.
func (d ToolDelta) Validate() error {
	if d.Tool == "" {
		return fmt.Errorf("%w: empty tool name", ErrInvalid)
	}
	for _, n := range []int64{d.Used, d.Succeeded, d.Unknown, d.LatencyMS} {
		if n < 0 || n > MaxDelta {
			return fmt.Errorf("%w: tool %q adds %d", ErrInvalid, d.Tool, n)
		}
	}
	return validateTime(d.At)
}

// validateRev reports a revision that no commit can have.
func validateRev(rev uint64) error {
	if rev == 0 || rev > MaxRev {
		return fmt.Errorf("%w: revision %d", ErrInvalid, rev)
	}
	return nil
}

// ValidateTools checks the argument of RecordTools.
func ValidateTools(records []ToolRecord) error {
	for _, r := range records {
		if err := r.validate(); err != nil {
			return err
		}
	}
	return nil
}

func (r ToolRecord) validate() error {
	if err := r.Key.Validate(); err != nil {
		return err
	}
	if err := validateRev(r.Rev); err != nil {
		return err
	}
	if r.After >= r.Rev {
		return fmt.Errorf("%w: revision %d after %d", ErrInvalid, r.Rev, r.After)
	}
	for _, d := range r.Deltas {
		if err := d.Validate(); err != nil {
			return err
		}
	}
	return nil
}

// ValidateKeys checks the argument of Heads.
func ValidateKeys(keys []Key) error {
	for _, k := range keys {
		if err := k.Validate(); err != nil {
			return err
		}
	}
	return nil
}

// Validate returns an ErrInvalid if l cannot be acquired.
func (l Lease) Validate() error {
	if l.Holder == "" {
		return fmt.Errorf("%w: lease without holder", ErrInvalid)
	}
	return nil
}

// ValidateMark checks the arguments of SetMark and Mark.
func ValidateMark(name string, value uint64) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: empty mark name", ErrInvalid)
	case value > MaxRev:
		return fmt.Errorf("%w: mark %q at %d", ErrInvalid, name, value)
	}
	return nil
}

// PageSize returns the number of sessions to return for a limit.
func PageSize(limit int) int {
	if limit <= 0 {
		return DefaultPage
	}
	return min(limit, MaxPage)
}

func validateTime(t time.Time) error {
	if !ValidTime(t) {
		return fmt.Errorf("%w: time %v", ErrInvalid, t)
	}
	return nil
}

// ValidTime reports whether a time can be stored.
func ValidTime(t time.Time) bool {
	us := Micros(t)
	return us >= 0 && us <= maxMicros
}

// Micros returns the form in which implementations store a time: microseconds since
// 1970, or 0 for the zero time.
func Micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// FromMicros is the inverse of Micros, in UTC.
func FromMicros(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}
