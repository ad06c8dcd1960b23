package e2etest

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/core/loader"
	"skandha.dev/services/core/shell"
	"skandha.dev/services/internal/archive"
	"skandha.dev/services/internal/store"
	"skandha.dev/services/internal/store/open"
)

// Settled waits until every cause in the log that must end has ended, every answer of
// a person is decided, and the persons have nothing more to say. It says how long that
// took: what is wedged is not settled within [Patience].
func (s *System) Settled() {
	s.T.Helper()
	began := time.Now()
	if !s.Tail.Within(Patience, func(l *Log) bool {
		return s.quiet(l) && s.reached(l) && len(l.Open()) == 0 && len(l.Undecided()) == 0
	}) {
		var open []Entry
		s.Tail.See(func(l *Log) { open = append(l.Open(), l.Undecided()...) })
		for i, e := range open {
			s.T.Errorf("wedged: the %s at %d of %s has not ended within %v", e.Kind(), e.Seq, e.Session(), Patience)
			if i < 3 {
				s.T.Log(s.Tail.SessionStory(e.Session(), 25))
			}
		}
		s.T.FailNow()
	}
	s.T.Logf("everything has ended after %v", time.Since(began).Round(time.Millisecond))
}

// reached reports whether the tail has read what was acknowledged.
func (s *System) reached(l *Log) bool {
	var last uint64
	for _, a := range s.Acked() {
		last = max(last, a.Seq)
	}
	return last == 0 || len(l.Entries) > 0 && l.Entries[len(l.Entries)-1].Seq >= last
}

// Verify judges the system, whose processes run and are at rest. It reads the
// whole log again: what was read while servers died must still be there, byte
// for byte. Every session is rebuilt from the log and compared with the last
// commit's digest and with what cores say; with views also with the snapshots in
// the cores' stores. The audit log is compared with the log of decisions.
func (s *System) Verify() *Log {
	s.T.Helper()
	s.Settled()
	was := s.Tail.entries() // timers of what is over may still fire, and be stored
	again := s.readAgain(was)
	effects, err := ReadEffects(s.Effects)
	if err != nil {
		s.T.Fatal(err)
	}
	faults := Audit(again, effects, s.Acked())
	faults = append(faults, sameAs(was, again)...)
	log := NewLog()
	for _, e := range again {
		log.Add(e)
	}
	faults = append(faults, s.rebuild(log)...)
	faults = append(faults, s.audited(log)...)
	for i, f := range faults {
		if i == 20 {
			s.T.Errorf("and %d more", len(faults)-i)
			break
		}
		s.T.Error(f)
	}
	return log
}

// readAgain reads the whole log again, and what has left it. In a cluster, a new leader may not have the end
// of the log yet: every entry seen before must come again.
func (s *System) readAgain(was []Entry) []Entry {
	s.T.Helper()
	upTo := uint64(0)
	if len(was) > 0 {
		upTo = was[len(was)-1].Seq
	}
	all := map[uint64]Entry{}
	for _, e := range s.readAfter(0, upTo) {
		all[e.Seq] = e
	}
	for _, e := range s.archived() {
		all[e.Seq] = e
	}
	return slices.SortedFunc(maps.Values(all), func(a, b Entry) int { return cmp.Compare(a.Seq, b.Seq) })
}

// archived is what has left the log, some of it perhaps while it was read.
func (s *System) archived() (out []Entry) {
	s.T.Helper()
	if s.Archive == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	store, err := archive.Open(ctx, s.Archive)
	if err != nil {
		s.T.Fatal(err)
	}
	names, err := store.List(ctx, "")
	if err != nil {
		s.T.Fatal(err)
	}
	log, err := s.Bus.LogState(ctx)
	if err != nil {
		s.T.Fatal(err)
	}
	refs := map[subject.Ref]bool{}
	for _, name := range names {
		parts := strings.Split(name, "/")
		refs[subject.Ref{Agent: subject.Agent(parts[0]), Session: subject.Session(parts[1])}] = true
	}
	for ref := range refs {
		for m, err := range archive.Read(ctx, store, ref, archive.Origin{Created: log.Created}, 0) {
			if err != nil {
				s.T.Fatal(err)
			}
			out = append(out, Entry{Seq: m.Seq, Time: m.Time, Subject: m.Subject, Header: m.Header, Data: m.Data})
		}
	}
	s.T.Logf("%d messages of %d sessions have left the log", len(out), len(refs))
	return out
}

// readAfter reads the log after a sequence, at least up to another one.
func (s *System) readAfter(last, upTo uint64) (out []Entry) {
	s.T.Helper()
	for deadline := time.Now().Add(Patience); ; {
		list, err := following(context.Background(), s.Tail.js, last, readAhead)
		if len(list) > 0 {
			out, last = append(out, list...), list[len(list)-1].Seq
			continue
		}
		if err == errEnd && (last >= upTo || time.Now().After(deadline)) { //nolint:errorlint // our own
			return out
		}
		if time.Now().After(deadline) {
			s.T.Fatalf("reading the log again: %v", err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// sameAs checks that nothing has vanished or changed since it was first read.
func sameAs(before, again []Entry) (faults []string) {
	at := map[uint64]Entry{}
	for _, e := range again {
		at[e.Seq] = e
	}
	for _, was := range before {
		is, ok := at[was.Seq]
		switch {
		case !ok:
			faults = append(faults, fmt.Sprintf("message %d was in the log and is gone", was.Seq))
		case is.Subject != was.Subject || !bytes.Equal(is.Data, was.Data) || !is.Time.Equal(was.Time):
			faults = append(faults, fmt.Sprintf("message %d has changed: %s, then %s", was.Seq, was.Story(), is.Story()))
		}
	}
	return faults
}

// rebuild checks promise 4.
func (s *System) rebuild(log *Log) (faults []string) {
	l := &loader.Loader{Bus: s.Bus, Log: slog.New(slog.DiscardHandler)}
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	for name := range log.Last {
		found := s.rebuildOne(ctx, l, name, log)
		for s.Archive != "" && len(found) > 0 && ctx.Err() == nil { // a checkpoint may have been stored since
			time.Sleep(100 * time.Millisecond)
			for _, e := range s.readAfter(log.Entries[len(log.Entries)-1].Seq, 0) {
				log.Add(e)
			}
			found = s.rebuildOne(ctx, l, name, log)
		}
		faults = append(faults, found...)
	}
	return faults
}

func (s *System) rebuildOne(ctx context.Context, l *loader.Loader, name string, log *Log) []string {
	last := log.Last[name]
	ref := refOf(last.Entry)
	st, err := l.Rebuild(ctx, ref)
	switch {
	case err != nil:
		return []string{fmt.Sprintf("%s cannot be rebuilt: %v", name, err)}
	case st.Rev != last.Seq || st.Digest != last.Digest:
		return []string{fmt.Sprintf("%s rebuilt is at %d with digest %s; its last commit is %d with %s", name, st.Rev, st.Digest,
			last.Seq, last.Digest)}
	}
	return s.asCoresSee(ref, st)
}

// asCoresSee compares a rebuilt state with what cores say; any replica may answer.
func (s *System) asCoresSee(ref subject.Ref, st *decide.State) (faults []string) {
	asked := 1
	for _, c := range s.Cores {
		if c.Running() {
			asked += 2
		}
	}
	for range asked {
		var info shell.SessionInfo
		var err error
		for deadline := time.Now().Add(Patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
			if info, err = s.Session(ref); err == nil {
				break
			}
		}
		if err != nil {
			return append(faults, fmt.Sprintf("asking a core for %s: %v", ref, err))
		}
		if info.Digest != st.Digest || info.State.Rev != st.Rev {
			faults = append(faults,
				fmt.Sprintf("a core sees %s at %d with %s; the log says %d with %s", ref, info.State.Rev, info.Digest, st.Rev,
					st.Digest))
		}
	}
	return faults
}

func refOf(e Entry) subject.Ref {
	ref, err := subject.ParseCommit(e.Subject)
	if err != nil {
		panic(fmt.Sprintf("e2etest: %v", err)) // a commit's subject parses, or nobody could have stored it
	}
	return ref
}

// Views compares the snapshots in the cores' stores, which must not run any
// more, with the log: loading from a snapshot gives the same state as folding
// everything, bit for bit. It returns how many snapshots there were.
func (s *System) Views(t testing.TB) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	quiet := slog.New(slog.DiscardHandler)
	last := map[string]Commit{}
	s.Tail.See(func(l *Log) {
		maps.Copy(last, l.Last)
	})
	found := 0
	for _, core := range s.Cores {
		st, err := open.Store(ctx, core.Role.Store, quiet)
		if err != nil {
			t.Fatalf("opening the store of %s: %v", core.Role.Name, err)
		}
		l := &loader.Loader{Bus: s.Bus, Store: st, Log: quiet}
		for name, c := range last {
			ref := refOf(c.Entry)
			if _, err := st.LoadSnapshot(ctx, store.KeyOf(ref)); err != nil {
				continue // none: it folds everything
			}
			found++
			viaView, err1 := l.Load(ctx, ref, nil)
			whole, err2 := l.Rebuild(ctx, ref)
			if err1 != nil || err2 != nil {
				t.Errorf("%s: loading %s: %v, %v", core.Role.Name, name, err1, err2)
				continue
			}
			a, _ := viaView.Snapshot()
			b, _ := whole.Snapshot()
			if !bytes.Equal(a, b) {
				t.Errorf("%s: %s loaded from its snapshot differs from the fold:\n%s\n%s", core.Role.Name, name, a, b)
			}
		}
		if err := st.Close(); err != nil {
			t.Errorf("closing the store of %s: %v", core.Role.Name, err)
		}
	}
	return found
}
