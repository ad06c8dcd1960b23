package auditor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/audit"
	"skandha.dev/services/internal/periodic"
)

// factIs is between what a fact is about and what is so, in the id of its entry.
const factIs = " is "

// maxActs is how many of the latest acts are known by their ids.
const maxActs = 4096

// state is what the log says, as far as it was read.
type state struct {
	chain    audit.Chain
	seq      uint64           // of the last block
	writer   subject.Instance // of the last entry
	moved    time.Time        // when this core last saw another entry
	loaded   bool
	facts    map[string]string
	acts     map[string]uint64 // numbers by id
	latest   []string          // ids of acts, the oldest first
	damages  map[string]bool   // by reason
	last     []damage          // the same, with their time
	expected uint64            // the highest entry that is known to be missing
	found    []finding         // that are not in the log yet
}

// finding is something wrong, and what was expected.
type finding struct {
	*audit.Break
	expected *audit.Head
}

func newState() state {
	return state{facts: map[string]string{}, acts: map[string]uint64{}, damages: map[string]bool{}}
}

// add reads a line.
func (s *state) add(line []byte) error {
	e, err := s.chain.Add(line)
	if e.N > 0 {
		s.note(e)
	}
	return err
}

// note keeps what later entries depend on.
func (s *state) note(e audit.Entry) {
	s.writer = e.Core
	switch of, is, fact := strings.Cut(e.ID, factIs); {
	case fact:
		s.facts[of] = is
	case e.ID != "":
		s.acts[e.ID] = e.N
		if s.latest = append(s.latest, e.ID); len(s.latest) > maxActs {
			delete(s.acts, s.latest[0])
			s.latest = s.latest[1:]
		}
	}
	if e.Verb == audit.Damaged {
		s.damages[e.Detail] = true
		s.last = append(s.last, damage{e.Time, e.Detail})
		if e.Expected != nil {
			s.expected = max(s.expected, e.Expected.N)
		}
	}
}

// block reads all lines of a block, and reports whether they continue the chain.
func (s *state) block(m bus.StoredMsg) bool {
	for _, line := range audit.Lines(m.Data) {
		if s.add(line) != nil {
			return false
		}
	}
	s.seq = m.Seq
	return true
}

// look reads what is new, and all again if the log is not the continuation of what was read. The caller
// holds turn.
func (a *Auditor) look(ctx context.Context) (err error) {
	defer func() {
		if a.looked = time.Now(); err != nil {
			a.looked = time.Time{}
		}
	}()
	if !a.have.loaded {
		return a.load(ctx)
	}
	m, err := a.cfg.Bus.LastAudit(ctx)
	switch {
	case errors.Is(err, bus.ErrNotFound):
		m = bus.StoredMsg{}
	case err != nil:
		return err
	}
	switch {
	case m.Seq < a.have.seq:
		return a.load(ctx)
	case m.Seq == a.have.seq:
		if m.Seq == 0 {
			return nil
		}
		lines := audit.Lines(m.Data)
		if e, err := audit.Parse(lines[len(lines)-1]); err != nil || e.Digest != a.have.chain.Digest {
			return a.load(ctx)
		}
		return nil
	}
	known := a.have.chain.Head()
	for m, err := range a.cfg.Bus.AuditBlocks(ctx, a.have.seq) {
		if err != nil {
			return err
		}
		if m.Seq != a.have.seq+1 || !a.have.block(m) {
			a.have.chain.N, a.have.chain.Digest = known.N, known.Digest
			return a.load(ctx) // to find out what is missing, or where it was changed
		}
	}
	a.remember()
	return nil
}

// load reads the whole log, and compares it with what was read before.
func (a *Auditor) load(ctx context.Context) error {
	var known []audit.Head
	if a.have.chain.N > 0 {
		known = append(known, a.have.chain.Head())
	}
	s, err := a.readAll(ctx, known)
	if err != nil {
		return err
	}
	s.found = append(a.have.found, s.found...)
	s.loaded, s.moved = true, a.have.moved
	a.have = s
	a.remember()
	return nil
}

// remember takes over what the log says of itself.
func (a *Auditor) remember() {
	a.have.moved = a.cfg.Now()
	for _, d := range a.have.last {
		a.note(d)
	}
	a.have.last = nil
}

// note adds a damage to those that status shows, and reports whether it is new.
func (a *Auditor) note(d damage) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if slices.ContainsFunc(a.damage, func(o damage) bool { return o.reason == d.reason }) {
		return false
	}
	a.damage = append(a.damage, d)
	return true
}

// shownFor is how long status shows a damage.
const shownFor = 7 * 24 * time.Hour

// Damage returns what was found wrong with the log in the last days, and since when that is known; empty: nothing.
func (a *Auditor) Damage() (reason string, since time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.damage = slices.DeleteFunc(a.damage, func(d damage) bool { return a.cfg.Now().Sub(d.at) > shownFor })
	for i, d := range a.damage {
		if i == 0 || d.at.Before(since) {
			reason, since = d.reason, d.at
		}
	}
	if n := len(a.damage); n > 1 {
		reason = fmt.Sprintf("%s (and %d more)", reason, n-1)
	}
	return reason, since
}

// readAll reads the whole log and compares it with entries that are known, with the published heads and with the
// marks.
func (a *Auditor) readAll(ctx context.Context, known []audit.Head) (state, error) {
	s := newState()
	heads, err := a.cfg.Head.published()
	if err != nil {
		a.cfg.Log.Warn("the published head of the audit log cannot be read", "error", err)
	}
	// Before the log, to which entries are added while it is read.
	last, err := a.cfg.Marks.Mark(ctx, lastMark)
	if err != nil {
		a.cfg.Log.Debug("reading the mark of the audit log", "error", err)
	}
	known = append(known, heads...)
	digests, differ := map[uint64]audit.Head{}, []audit.Head{}
	for _, h := range known {
		digests[h.N] = h
	}
	for m, err := range a.cfg.Bus.AuditBlocks(ctx, 0) {
		if err != nil {
			return s, err
		}
		for _, line := range audit.Lines(m.Data) {
			err := s.add(line)
			if b, broken := errors.AsType[*audit.Break](err); broken {
				s.found = append(s.found, finding{Break: b})
			}
			if h, is := digests[s.chain.N]; is && h.Digest != s.chain.Digest {
				differ = append(differ, h)
			}
		}
		s.seq = m.Seq
	}
	for _, h := range differ {
		if h.N > s.expected {
			b := audit.Entry{N: h.N}.Against(h)
			s.found = append(s.found, finding{b, &h})
			break
		}
	}
	if h := slices.MaxFunc(append(known, audit.Head{N: last}), func(a, b audit.Head) int { return cmp.Compare(a.N, b.N) }); h.N > s.expected {
		if b := s.chain.Short(h); b != nil {
			s.found = append(s.found, finding{b, &h})
		}
	}
	return s, a.front(ctx, &s)
}

// largestBlock is what a full stream may lack, in bytes.
const largestBlock = 1 << 20

// front looks whether the first entries were dropped because the stream was full or they were old.
func (a *Auditor) front(ctx context.Context, s *state) error {
	if s.chain.First <= 1 {
		return nil
	}
	before, err := a.cfg.Marks.Mark(ctx, firstMark)
	if err != nil || s.chain.First <= before {
		return nil //nolint:nilerr // it is compared the next time
	}
	info, err := a.cfg.Bus.AuditInfo(ctx)
	if err != nil {
		return err
	}
	if c := info.Config; c.MaxAge == 0 && (c.MaxBytes <= 0 || info.State.Bytes+largestBlock < uint64(c.MaxBytes)) {
		s.found = append(s.found, finding{Break: &audit.Break{N: max(before, 1), Reason: fmt.Sprintf(
			"entries %d to %d were removed, although the stream has room for them", max(before, 1), s.chain.First-1)}})
		return nil
	}
	if err := a.cfg.Marks.SetMark(ctx, firstMark, s.chain.First); err != nil {
		a.cfg.Log.Debug("remembering the beginning of the audit log", "error", err)
	}
	return nil
}

// verifyNow reads the whole log from time to time.
func (a *Auditor) verifyNow(ctx context.Context) {
	periodic.Every(ctx, verifyEvery, func() {
		if err := a.Verify(ctx); err != nil && ctx.Err() == nil {
			a.cfg.Log.Warn("verifying the audit log", "error", err)
		}
	})
}

// Verify recomputes the whole chain. What is wrong is noted; see [Auditor.Damage].
func (a *Auditor) Verify(ctx context.Context) error {
	s, err := a.readAll(ctx, nil)
	if err != nil {
		return err
	}
	for _, f := range s.found {
		a.wrong(ctx, f)
	}
	return nil
}
