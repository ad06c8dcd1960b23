package auditor_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/services/core/auditor"
	"skandha.dev/services/internal/audit"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/test/natstest"
)

// rewrite deletes the stream, as somebody would who holds an administrator's key, and stores other lines.
func (w *world) rewrite(lines [][]byte) {
	w.t.Helper()
	js, ctx := w.bus.JetStream(), natstest.Context(w.t)
	if err := js.DeleteStream(ctx, journal.StreamAudit); err != nil {
		w.t.Fatal(err)
	}
	natstest.EnsureStreams(w.t, w.bus)
	if len(lines) > 0 {
		if _, err := w.bus.AppendAudit(ctx, audit.Block(lines), 0); err != nil && !errors.Is(err, bus.ErrFenceLost) { // a core was faster
			w.t.Fatal(err)
		}
	}
}

func (w *world) lines() (out [][]byte) {
	w.t.Helper()
	for m, err := range w.bus.AuditBlocks(natstest.Context(w.t), 0) {
		if err != nil {
			w.t.Fatal(err)
		}
		out = append(out, audit.Lines(m.Data)...)
	}
	return out
}

// forge seals lines again from one on, with a change of that one: a chain that is intact in itself.
func forge(t *testing.T, lines [][]byte, from int, change func(*audit.Entry)) (out [][]byte) {
	t.Helper()
	prev := ""
	for i, line := range lines {
		e, err := audit.Parse(line)
		if err != nil {
			t.Fatal(err)
		}
		if i >= from {
			if i == from {
				change(&e)
			}
			e.Prev = prev
			if line, err = e.Seal(); err != nil {
				t.Fatal(err)
			}
		}
		prev = e.Digest
		out = append(out, line)
	}
	return out
}

// Whatever is done to the stream, a core that runs, and one that starts later, says so, and goes on.
func TestDamageIsNoticed(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(t *testing.T, lines [][]byte) [][]byte
		running bool // while a core runs
		head    bool // only the published head shows it to a core that starts
		says    string
	}{
		"changed": {func(t *testing.T, l [][]byte) [][]byte {
			l[2] = []byte(strings.Replace(string(l[2]), "ann", "bob", 1))
			return l
		}, false, false, "entry 3 was changed"},
		"removed":                   {func(_ *testing.T, l [][]byte) [][]byte { return append(l[:2:2], l[3:]...) }, false, false, "entries 3 to 3 were removed"},
		"the end cut off":           {func(_ *testing.T, l [][]byte) [][]byte { return l[:3] }, false, false, "entries 4 to 5 were removed"},
		"deleted":                   {func(*testing.T, [][]byte) [][]byte { return nil }, false, false, "all entries were removed, up to entry 5"},
		"deleted while a core runs": {func(*testing.T, [][]byte) [][]byte { return nil }, true, false, "all entries were removed, up to entry 5"},
		"rewritten from 3 on": {func(t *testing.T, l [][]byte) [][]byte {
			return forge(t, l, 2, func(e *audit.Entry) { e.By.Name = "bob" })
		}, false, true, "entry 5 is not the one whose digest was published"},
		"rewritten while a core runs": {func(t *testing.T, l [][]byte) [][]byte {
			return forge(t, l, 2, func(e *audit.Entry) { e.By.Name = "bob" })
		}, true, false, "entr"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			if c.head {
				w.cfg.Head = auditor.Head{File: filepath.Join(t.TempDir(), "heads"), Interval: time.Second}
			}
			for i := range 5 {
				w.say("s1", fmt.Sprint("input ", i))
			}
			a, kill := w.core()
			w.await(a, 5)
			if c.head {
				natstest.Eventually(t, "the head is published", func() bool { b, _ := os.ReadFile(w.cfg.Head.File); return len(b) > 0 })
			}
			if !c.running {
				natstest.Eventually(t, "the end is remembered", func() bool { n, _ := w.marks.Mark(t.Context(), "audit_last"); return n == 5 })
				kill()
			}
			w.rewrite(c.change(t, w.lines()))
			if !c.running {
				a, _ = w.core()
			}
			natstest.Eventually(t, "the damage is noticed", func() bool {
				a.Wake()
				why, _ := a.Damage()
				return strings.Contains(why, c.says)
			})
			natstest.Eventually(t, "it is an entry", func() bool {
				a.Wake()
				for _, e := range w.entries() {
					if e.Verb == audit.Damaged && strings.Contains(e.Detail, c.says) {
						return true
					}
				}
				return false
			})
			w.say("s1", "afterwards")
			natstest.Eventually(t, "it goes on", func() bool {
				a.Wake()
				all := w.said()
				return len(all) > 0 && all[len(all)-1] == "afterwards"
			})
			page, err := a.Query(natstest.Context(t), coreapi.AuditQuery{Verb: audit.Damaged, Verify: true})
			if err != nil || len(page.Lines) == 0 || page.Damage == "" || !page.Verified {
				t.Errorf("%+v, %v", page, err)
			}
		})
	}
}

// An entry that is added and marked while the log is verified is not taken for one that was removed.
func TestAnEntryThatComesWhileTheLogIsVerified(t *testing.T) {
	w := newWorld(t)
	a, _ := w.core()
	announce := func() uint64 {
		n, err := a.Announce(natstest.Context(t), audit.Entry{By: audit.Who{Kind: audit.Operator, Name: "ann"}, Verb: audit.Dropped})
		if err != nil {
			t.Error(err)
		}
		return n
	}
	announce()
	cfg := w.cfg
	cfg.Bus, cfg.Marks, cfg.Log = w.bus, &marks{all: map[string]uint64{}, asked: announce}, natstest.Logger(t)
	b := auditor.New(cfg)
	if err := b.Verify(natstest.Context(t)); err != nil {
		t.Fatal(err)
	}
	if why, _ := b.Damage(); why != "" {
		t.Error(why)
	}
}
