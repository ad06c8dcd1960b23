package audit

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"skandha.dev/pkg/event"
)

// Verifier compares entries with one another, with heads that were published, and with the commits that are still in
// the log. Entries are added first, in order, then commits.
type Verifier struct {
	Chain
	Entries  int
	Compared int // with commits
	Heads    int // published ones that agree

	heads  map[uint64]Head
	last   Head // the highest of them
	log    time.Time
	low    uint64 // commits up to here are not compared
	begun  bool   // an entry of the log was read
	source map[uint64]map[string]Entry
	breaks []*Break
}

// NewVerifier returns a verifier of the log of decisions that was created at a time; zero: no commits are compared.
func NewVerifier(log time.Time, heads []Head) *Verifier {
	v := &Verifier{log: log, heads: map[uint64]Head{}, source: map[uint64]map[string]Entry{}}
	for _, h := range heads {
		if old, is := v.heads[h.N]; is && old.Digest != h.Digest {
			v.broken(&Break{h.N, fmt.Sprintf("two different heads of entry %d were published", h.N)})
		}
		v.heads[h.N] = h
		if h.N > v.last.N {
			v.last = h
		}
	}
	return v
}

func (v *Verifier) broken(b *Break) { v.breaks = append(v.breaks, b) }

// Line reads the next entry.
func (v *Verifier) Line(line []byte) {
	first := v.First == 0
	e, err := v.Add(line)
	if b, is := errors.AsType[*Break](err); is {
		v.broken(b)
	}
	v.Entries++
	if h, is := v.heads[e.N-1]; is && first && e.N > 1 { // the entry before is not here, but its digest is
		if e.Prev != h.Digest {
			v.broken(&Break{e.N, fmt.Sprintf("entry %d names another digest of the entry before it than was published: "+
				"one of the two was rewritten", e.N)})
		} else {
			v.Heads++
		}
	}
	if h, is := v.heads[e.N]; is && e.N > 0 {
		if b := e.Against(h); b != nil {
			v.broken(b)
		} else {
			v.Heads++
		}
	}
	if e.Verb == Damaged {
		v.broken(&Break{e.N, fmt.Sprintf("entry %d says that the log was damaged before %s: %s", e.N, e.Time.Format(time.RFC3339), e.Detail)})
	}
	if v.log.IsZero() || !e.Log.Log.Equal(v.log) {
		return
	}
	switch {
	case e.Verb == Renewed: // from here on, sequences may be those of other commits
		for seq := range v.source {
			if seq > e.Log.Sequence {
				delete(v.source, seq)
			}
		}
		if !v.begun {
			v.low = e.Log.Sequence
		}
	case !v.begun && v.First > 1:
		v.low = e.Log.Sequence
	}
	v.begun = true
	if s := e.Source; s != nil {
		if v.source[s.Sequence] == nil {
			v.source[s.Sequence] = map[string]Entry{}
		}
		v.source[s.Sequence][s.Part] = e
	}
}

// Commit compares a commit with its entries.
func (v *Verifier) Commit(c event.Commit, seq uint64, body []byte) {
	if !v.begun || seq <= v.low || seq > v.Chain.Log.Sequence {
		return
	}
	have := v.source[seq]
	delete(v.source, seq)
	for _, want := range Pick(c, seq, body) {
		got, is := have[want.Source.Part]
		delete(have, want.Source.Part)
		switch {
		case !is:
			v.broken(&Break{v.after(seq), fmt.Sprintf("an entry is missing: commit %d of session %s says that %s %s %s",
				seq, c.Ref, want.By, want.Verb, want.What)})
		case !got.says(want):
			v.broken(&Break{got.N, fmt.Sprintf("entry %d was changed: it is not what commit %d of session %s says", got.N, seq, c.Ref)})
		default:
			v.Compared++
		}
	}
	for _, e := range have {
		v.broken(&Break{e.N, fmt.Sprintf("entry %d was put in: commit %d of session %s says nothing of it", e.N, seq, c.Ref)})
	}
}

// after is the number of the first entry of a commit after a sequence, or of the last entry.
func (v *Verifier) after(seq uint64) uint64 {
	n := v.N
	for s, parts := range v.source {
		for _, e := range parts {
			if s > seq && e.N < n {
				n = e.N
			}
		}
	}
	return n
}

// says reports whether an entry has the content that was picked.
func (e Entry) says(want Entry) bool {
	same := *e.Source == *want.Source && e.Time.Equal(want.Time)
	e.N, e.Log, e.Core, e.Prev, e.Digest, e.Source, e.Time = 0, want.Log, "", "", "", want.Source, want.Time
	return same && e == want
}

// Unchecked is how many published heads are of entries that precede the first one that was read, and so were compared
// with nothing.
func (v *Verifier) Unchecked() (n int) {
	for at := range v.heads {
		if at+1 < v.First { // the first entry names the digest of the one before it
			n++
		}
	}
	return n
}

// Gone is how many entries are of commits that are no longer in the log.
func (v *Verifier) Gone() (n int) {
	for _, parts := range v.source {
		n += len(parts)
	}
	return n
}

// Breaks returns what is wrong, in the order of the entries.
func (v *Verifier) Breaks() []*Break {
	out := slices.Clone(v.breaks)
	if b := v.Short(v.last); b != nil {
		out = append(out, b)
	}
	slices.SortStableFunc(out, func(a, b *Break) int { return int(a.N) - int(b.N) }) //nolint:gosec // numbers of entries
	return out
}
