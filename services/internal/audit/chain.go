package audit

import (
	"fmt"
	"time"
)

// Break is the first entry of a chain that is not as it was written.
type Break struct {
	N      uint64 // its number; the first of them, if several were removed
	Reason string
}

// Error implements error.
func (b *Break) Error() string { return b.Reason }

// Chain is what is known after reading entries in order. The zero value has read none.
type Chain struct {
	First uint64 // number of the first entry that was read; the ones before it are no longer kept
	N     uint64 // number of the last entry
	// Digest and Time are those of the last entry.
	Digest string
	Time   time.Time
	Log    Position // how far the log is audited
}

// Head returns the last entry.
func (c Chain) Head() Head { return Head{c.N, c.Digest, c.Time} }

// Add reads the next line. The error is a [*Break] if the line does not continue the chain; the chain goes on with it
// then, if it is an entry at all, so that what follows is still read.
func (c *Chain) Add(line []byte) (Entry, error) {
	e, err := Parse(line)
	if err != nil && e.N == 0 {
		return e, &Break{c.N + 1, fmt.Sprintf("entry %d cannot be read: %v", c.N+1, err)}
	}
	return e, c.extend(e, err)
}

// Extend adds an entry that [Entry.Seal] has sealed; see Add for the error.
func (c *Chain) Extend(e Entry) error { return c.extend(e, nil) }

// extend adds an entry that was read with an error, or without one.
func (c *Chain) extend(e Entry, err error) error {
	before := *c
	if c.First == 0 {
		c.First = e.N
	}
	c.N, c.Digest, c.Time, c.Log = e.N, e.Digest, e.Time, e.Log
	switch {
	case err != nil:
		return &Break{e.N, fmt.Sprintf("entry %d was changed: %v", e.N, err)}
	case before.First == 0 && e.N == 1 && e.Prev != "":
		return &Break{1, "entry 1 was replaced: it names an entry before it"}
	case before.First == 0:
		return nil
	case e.N > before.N+1:
		return &Break{before.N + 1, fmt.Sprintf("entries %d to %d were removed", before.N+1, e.N-1)}
	case e.N <= before.N:
		return &Break{before.N + 1, fmt.Sprintf("entry %d is where entry %d belongs: entries were swapped or put in", e.N, before.N+1)}
	case e.Prev != before.Digest:
		return &Break{before.N, fmt.Sprintf("entry %d was replaced, or entry %d: the second names another digest of the first",
			before.N, e.N)}
	}
	return nil
}

// Against compares an entry with a head that was published when the entry was the last one. nil: they agree, or the
// head is of another entry.
func (e Entry) Against(h Head) *Break {
	if e.N != h.N || e.Digest == h.Digest {
		return nil
	}
	return &Break{e.N, fmt.Sprintf("entry %d is not the one whose digest was published: "+
		"it, or an entry before it, was rewritten", e.N)}
}

// Short returns the break of a chain that ends before an entry that is known to have been there; nil if it does not.
func (c Chain) Short(h Head) *Break {
	if c.N >= h.N {
		return nil
	}
	reason := fmt.Sprintf("entries %d to %d were removed: the last one is %d, but entry %d is known", c.N+1, h.N, c.N, h.N)
	if c.N == 0 {
		reason = fmt.Sprintf("all entries were removed, up to entry %d, which is known", h.N)
	}
	return &Break{c.N + 1, reason}
}
