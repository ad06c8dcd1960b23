package shell_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core"
	"skandha.dev/services/core/loader"
	"skandha.dev/services/core/shell"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/natsserver"
	"skandha.dev/services/internal/store/sqlite"
	"skandha.dev/services/test/natstest"
)

var (
	hurt  = subject.Ref{Agent: "main", Session: "hurt"}
	sound = subject.Ref{Agent: "main", Session: "sound"}
)

// disk is the stored data of a stopped system.
type disk struct {
	t          *testing.T
	nats, view string
}

// leave runs a system with one input in the session that stays sound, and then three
// in the one that will be damaged.
func leave(t *testing.T) disk {
	d := disk{t: t, nats: t.TempDir(), view: filepath.Join(t.TempDir(), "view.db")}
	ok := t.Run("before", func(t *testing.T) {
		s := start(t, core.Config{}, d.use(t))
		well, ch := s.follow(sound), s.follow(hurt)
		s.say(sound, event.Input{Text: "zero"})
		s.await(well, event.TypeRecorded)
		for _, text := range []string{"one", "two", "three"} {
			s.say(hurt, event.Input{Text: text})
			s.await(ch, event.TypeRecorded)
		}
		s.stopCore() // this writes the view
	})
	if !ok {
		t.FailNow()
	}
	return d
}

// use makes a system run on the disk.
func (d disk) use(t *testing.T) func(*system) {
	return func(s *system) {
		s.srv = natstest.Start(t, natstest.WithConfig(func(c *natsserver.Config) { c.StoreDir = d.nats }))
		view, err := sqlite.Open(t.Context(), sqlite.Config{Path: d.view})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = view.Close() })
		s.view = view
	}
}

// start runs a system on the disk as it is now.
func (d disk) start() *system { return start(d.t, core.Config{}, d.use(d.t)) }

// file finds a file of the log.
func (d disk) file(name string) string {
	d.t.Helper()
	all, err := filepath.Glob(filepath.Join(d.nats, "jetstream", "*", "streams", bus.StreamSessions, "msgs", name))
	if err != nil || len(all) != 1 {
		d.t.Fatalf("%s: %v %v", name, all, err)
	}
	return all[0]
}

// record is the position of a message in the block file.
type record struct {
	subject    string
	begin, end int
}

// block reads the only file of the log. A record is a header of 22 bytes, the subject,
// the message and a checksum of 8 bytes.
func (d disk) block() (data []byte, all []record) {
	d.t.Helper()
	data, err := os.ReadFile(d.file("1.blk"))
	if err != nil {
		d.t.Fatal(err)
	}
	for at := 0; at < len(data); {
		size := int(binary.LittleEndian.Uint32(data[at:]) &^ (1 << 31))
		subj := int(binary.LittleEndian.Uint16(data[at+20:]))
		all = append(all, record{string(data[at+22 : at+22+subj]), at, at + size})
		at += size
	}
	return data, all
}

// commits returns the records of the damaged session's commits.
func (d disk) commits() (data []byte, all []record) {
	data, records := d.block()
	for _, r := range records {
		if r.subject == hurt.Commit() {
			all = append(all, r)
		}
	}
	return data, all
}

func (d disk) write(data []byte) {
	d.t.Helper()
	if err := os.WriteFile(d.file("1.blk"), data, 0o600); err != nil {
		d.t.Fatal(err)
	}
}

func (d disk) remove(path string) {
	d.t.Helper()
	if err := os.Remove(path); err != nil {
		d.t.Fatal(err)
	}
}

// scratch makes a record unreadable, without changing its checksum.
func (d disk) scratch(data []byte, r record) {
	for i := r.end - 28; i < r.end-8; i++ {
		data[i] ^= 0xff
	}
	d.write(data)
}

// cutBefore ends the log before a record. Without the index, the server counts again.
func (d disk) cutBefore(data []byte, r record) {
	d.write(data[:r.begin])
	d.remove(d.file("index.db"))
}

// Whatever happened to a session's log, the session is locked once and reports it, its
// input ends once, other sessions are unaffected, and /repair opens it with the saved state.
func TestADamagedLogLocksTheSession(t *testing.T) {
	for _, c := range []struct {
		name   string
		harm   func(d disk)
		saved  []string // of the messages
		others bool     // they lost their log, too
	}{
		{"the last commit is unreadable", func(d disk) {
			data, all := d.commits()
			d.scratch(data, all[len(all)-1])
		}, []string{"one", "two", "three", "echo: three"}, false},
		{"the last commit is unreadable, and there is no view", func(d disk) {
			data, all := d.commits()
			d.scratch(data, all[len(all)-1])
			d.remove(d.view)
		}, []string{"one", "two", "three"}, false},
		{"a commit in the middle is unreadable, and there is no view", func(d disk) {
			data, all := d.commits()
			d.scratch(data, all[2])
			d.remove(d.view)
		}, []string{"one"}, false},
		{"the block is cut off, and sequences are used again", func(d disk) {
			data, all := d.commits()
			d.cutBefore(data, all[2])
		}, []string{"one", "two", "three", "echo: three"}, false},
		{
			"the block is gone", func(d disk) { d.remove(d.file("1.blk")) },
			[]string{"one", "two", "three", "echo: three"},
			true,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel() // each waits for core to be sure
			d := leave(t)
			c.harm(d)
			s := d.start()
			heard := s.listen()
			ch, well := s.follow(hurt), s.follow(sound)
			seq := s.say(hurt, event.Input{Text: "four"})
			if !c.others {
				s.say(sound, event.Input{Text: "still there?"})
				s.await(well, event.TypeRecorded)
			}
			var f event.TurnFailed
			for f.Sequence != seq {
				if err := s.await(ch, event.TypeTurnFailed).DataAs(&f); err != nil {
					t.Fatal(err)
				}
			}
			if f.Code != event.FailLocked {
				t.Errorf("%+v", f)
			}
			contains(t, f.Reason, "its log is damaged: ", "/repair continues with what was recovered, ", "/reset")
			for counter, limit := range map[string]int64{"mismatches": 1, "fence_lost": 5, "poison": 0} {
				if n := s.core.Counters()[counter]; n > limit {
					t.Errorf("%s: %d, want at most %d", counter, n, limit)
				}
			}
			contains(t, s.command(hurt, ch, "repair"), "The session is unlocked, as of commit ")
			s.say(hurt, event.Input{Text: "five"})
			s.await(ch, event.TypeRecorded)
			if got := heard(); !inOrder(got, c.saved) {
				t.Errorf("the model was asked with %q, want what was saved: %q", got, c.saved)
			}
			s.folds(hurt)
			s.endsOnce(hurt)
			if n := s.core.Counters()["mismatches"]; n != 1 {
				t.Errorf("%d alarms", n)
			}
		})
	}
}

// inOrder reports whether said contains saved, in that order.
func inOrder(said, saved []string) bool {
	for _, want := range saved {
		found := false
		for len(said) > 0 && !found {
			found, said = said[0] == want, said[1:]
		}
		if !found {
			return false
		}
	}
	return true
}

// listen returns a function that returns the messages of the last model call.
func (s *system) listen() func() []string {
	var mu sync.Mutex
	var last []string
	s.asked = func(r provider.Request) {
		mu.Lock()
		defer mu.Unlock()
		last = nil
		for _, raw := range r.Messages {
			var m provider.Message
			_ = json.Unmarshal(raw, &m) // an unreadable one counts as empty
			last = append(last, m.Text)
		}
	}
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return last
	}
}

// folds checks that the log can be folded from its first commit.
func (s *system) folds(ref subject.Ref) {
	s.t.Helper()
	if _, err := (&loader.Loader{Bus: s.bus, Log: natstest.Logger(s.t)}).Rebuild(s.t.Context(), ref); err != nil {
		s.t.Errorf("the log does not fold: %v", err)
	}
}

// endsOnce checks that every input in the log has exactly one end.
func (s *system) endsOnce(ref subject.Ref) {
	s.t.Helper()
	inputs, ends := map[uint64]bool{}, map[uint64]int{}
	for m, err := range s.bus.Messages(context.Background(), ref, 0) {
		if err != nil {
			s.t.Fatal(err)
		}
		if at, err := subject.ParseCause(m.Subject); err == nil {
			inputs[m.Seq] = at.Kind == subject.Input || at.Kind == subject.Command
			continue
		}
		c, err := event.DecodeCommit(ref, m.Data)
		if err != nil {
			continue
		}
		for _, e := range c.Events {
			var p struct{ Sequence uint64 }
			if e.Type.Terminal() && json.Unmarshal(e.Data, &p) == nil {
				ends[p.Sequence]++
			}
		}
	}
	for seq := range inputs {
		if ends[seq] != 1 {
			s.t.Errorf("input %d has %d ends", seq, ends[seq])
		}
	}
}

// A session continues from its snapshot, although an earlier commit is unreadable.
func TestAnOldUnreadableCommitDoesNotStopALiveSession(t *testing.T) {
	t.Parallel()
	d := leave(t)
	data, all := d.commits()
	d.scratch(data, all[2])
	s := d.start()
	ch := s.follow(hurt)
	s.say(hurt, event.Input{Text: "four"})
	s.await(ch, event.TypeRecorded)
	if n := s.core.Counters()["mismatches"]; n != 0 {
		t.Errorf("%d alarms", n)
	}
}

// A view that is older than the log belongs to another log: nothing is lost.
func TestAViewOfAnotherLogLocksNothing(t *testing.T) {
	d := leave(t)
	d.nats = t.TempDir()
	shell.SetClockSkew(t, 0)
	s := d.start()
	ch := s.follow(hurt)
	s.say(hurt, event.Input{Text: "four"})
	s.await(ch, event.TypeRecorded)
	if n := s.core.Counters()["mismatches"]; n != 0 {
		t.Errorf("%d alarms", n)
	}
}

// A log that ends below what was acknowledged is shown to operators.
func TestALogThatLostItsEndIsShown(t *testing.T) {
	t.Parallel()
	d := leave(t)
	d.remove(d.file("1.blk"))
	s := d.start()
	all := s.core.Status(t.Context()).Troubles
	if len(all) != 1 || all[0].Kind != coreapi.TroubleLog {
		t.Fatalf("%+v", all)
	}
	contains(t, all[0].Reason, "was acknowledged and is not in the log any more")
}

// Another core has repaired the session, or its log is gone.
func TestTroublesThatAreOverAreNotListed(t *testing.T) {
	t.Parallel()
	s := start(t, core.Config{})
	ch := s.follow(sound)
	s.say(sound, event.Input{Text: "one"})
	s.await(ch, event.TypeRecorded)
	shell.NoteTrouble(s.core, sound)
	shell.NoteTrouble(s.core, subject.Ref{Agent: "main", Session: "gone"})
	natstest.Eventually(t, "none is listed", func() bool { return len(s.core.Status(t.Context()).Troubles) == 0 })
}
