package archive_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/archive"
)

var (
	ref = subject.Ref{Agent: "main", Session: "s"}
	day = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
)

// stores are archives of each kind.
func stores(t *testing.T) map[string]archive.Store {
	t.Helper()
	return map[string]archive.Store{"directory": directory(t), "s3": open(t, bucket(t, nil))}
}

func directory(t *testing.T) archive.Store {
	t.Helper()
	return open(t, filepath.Join(t.TempDir(), "a", "b"))
}

func open(t *testing.T, where string) archive.Store {
	t.Helper()
	s, err := archive.Open(t.Context(), where)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// bucket starts a server that speaks S3, and returns the place of an archive in it. Requests that fault answers do not
// reach it.
func bucket(t *testing.T, fault func(http.ResponseWriter, *http.Request) bool) string {
	t.Helper()
	t.Setenv("AWS_ACCESS_KEY_ID", "key")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	mem := s3mem.New()
	if err := mem.CreateBucket("archive"); err != nil {
		t.Fatal(err)
	}
	s3 := gofakes3.New(mem).Server()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if fault == nil || !fault(w, r) {
			s3.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(srv.Close)
	return "s3://archive/of/tests?insecure=true&region=us-east-1&endpoint=" + strings.TrimPrefix(srv.URL, "http://")
}

func message(seq uint64, data string) bus.StoredMsg {
	return bus.StoredMsg{
		Seq: seq, Time: day.Add(time.Duration(seq) * time.Second), Subject: ref.Commit(), //nolint:gosec // small
		Header: nats.Header{"Skandha-Outgoing": {"1"}}, Data: []byte(data),
	}
}

func put(t *testing.T, s archive.Store, log time.Time, all ...bus.StoredMsg) {
	t.Helper()
	w := archive.NewWriter(s, ref, log)
	for _, m := range all {
		if err := w.Add(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, s archive.Store, log time.Time, after uint64) (all []bus.StoredMsg) {
	t.Helper()
	for m, err := range archive.Read(t.Context(), s, ref, archive.Origin{Created: log}, after) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
	return all
}

func sequences(all []bus.StoredMsg) (out []uint64) {
	for _, m := range all {
		out = append(out, m.Seq)
	}
	return out
}

func TestMessagesComeBackByteForByte(t *testing.T) {
	all := []bus.StoredMsg{
		message(2, `[ {"a": "<&>\u2028", "n": 1.50} ]`), message(3, "{}\n"), message(5, " {}"), message(8, "not JSON"),
		message(9, ""), message(11, "\xff\x00"), message(12, "null"), message(40, `"`+strings.Repeat("x", 1<<20)+`"`),
	}
	all[1].Header = nil
	for name, s := range stores(t) {
		t.Run(name, func(t *testing.T) {
			put(t, s, day, all...)
			got := get(t, s, day, 0)
			for i := range got {
				if len(got[i].Data) == 0 {
					got[i].Data = []byte{}
				}
			}
			if !reflect.DeepEqual(got, all) {
				t.Errorf("got %.300v, want %.300v", got, all)
			}
			if n := len(get(t, s, day, 9)); n != 3 {
				t.Errorf("%d messages after 9, want 3", n)
			}
		})
	}
}

func TestWhatIsArchivedTwiceIsReadOnce(t *testing.T) {
	for name, s := range stores(t) {
		t.Run(name, func(t *testing.T) {
			put(t, s, day, message(2, "{}"), message(3, "{}"))
			put(t, s, day, message(2, "{}"), message(3, "{}"), message(7, "{}")) // the first run was interrupted
			put(t, s, day, message(2, "{}"), message(3, "{}"))
			put(t, s, day, message(9, "{}"))
			put(t, s, day.Add(time.Hour), message(4, "{}")) // of a log that was created later
			if got := sequences(get(t, s, day, 0)); !slices.Equal(got, []uint64{2, 3, 7, 9}) {
				t.Errorf("read %v", got)
			}
			if got := sequences(get(t, s, day.Add(time.Hour), 0)); !slices.Equal(got, []uint64{4}) {
				t.Errorf("read %v of the later log", got)
			}
			other := ref
			other.Session = "s-2" // its name begins with that of the session
			if err := archive.Delete(t.Context(), s, other); err != nil {
				t.Error(err)
			}
			if all, err := archive.Segments(t.Context(), s, ref); err != nil || len(all) != 4 {
				t.Errorf("%v, %v", all, err)
			}
			if err := archive.Delete(t.Context(), s, ref); err != nil {
				t.Error(err)
			}
			if left := get(t, s, day, 0); len(left) > 0 {
				t.Errorf("%d messages are left", len(left))
			}
		})
	}
}

func TestALargePartBecomesSeveralSegments(t *testing.T) {
	s := directory(t)
	var all []bus.StoredMsg
	for i := range uint64(10) {
		all = append(all, message(i+1, `"`+strings.Repeat("x", 4<<20)+`"`))
	}
	put(t, s, day, all...)
	parts, err := archive.Segments(t.Context(), s, ref)
	if err != nil || len(parts) != 3 {
		t.Fatalf("%d segments, %v", len(parts), err)
	}
	if got := sequences(get(t, s, day, 0)); len(got) != 10 {
		t.Errorf("read %v", got)
	}
}

func TestADamagedSegmentIsNoted(t *testing.T) {
	for name, s := range stores(t) {
		put(t, s, day, message(2, `{"a":1}`), message(3, `{"a":2}`))
		parts, err := archive.Segments(t.Context(), s, ref)
		if err != nil {
			t.Fatal(err)
		}
		whole, err := s.Get(t.Context(), parts[0].Name)
		if err != nil {
			t.Fatal(err)
		}
		flipped := bytes.Clone(whole)
		flipped[len(flipped)/2] ^= 1
		for what, body := range map[string][]byte{
			"cut": whole[:len(whole)-5], "flipped": flipped, "a byte": {0}, "text": []byte("nothing"),
		} {
			t.Run(name+"/"+what, func(t *testing.T) {
				if err := s.Put(t.Context(), parts[0].Name, body); err != nil {
					t.Fatal(err)
				}
				for m, err := range archive.Read(t.Context(), s, ref, archive.Origin{Created: day}, 0) {
					if !errors.Is(err, archive.ErrDamaged) || !strings.Contains(err.Error(), parts[0].Name) {
						t.Errorf("%v, %v", m.Seq, err)
					}
				}
			})
		}
		t.Run(name+"/of another session", func(t *testing.T) {
			if err := s.Put(t.Context(), strings.Replace(parts[0].Name, "main/s/", "main/other/", 1), whole); err != nil {
				t.Fatal(err)
			}
			other := subject.Ref{Agent: "main", Session: "other"}
			for _, err := range archive.Read(t.Context(), s, other, archive.Origin{Created: day}, 0) {
				if !errors.Is(err, archive.ErrDamaged) {
					t.Error(err)
				}
			}
		})
	}
}

func TestAnArchiveThatFailsIsAnError(t *testing.T) {
	var down atomic.Bool
	where := bucket(t, func(w http.ResponseWriter, r *http.Request) bool {
		if down.Load() && r.Method == http.MethodPut {
			http.Error(w, "<Error><Code>AccessDenied</Code></Error>", http.StatusForbidden)
			return true
		}
		return false
	})
	s, err := archive.Open(t.Context(), where)
	if err != nil {
		t.Fatal(err)
	}
	down.Store(true)
	w := archive.NewWriter(s, ref, day)
	if err := w.Add(t.Context(), message(2, "{}")); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(t.Context()); err == nil || w.Messages != 0 || !strings.Contains(err.Error(), "s3://archive/of/tests/") {
		t.Errorf("%v, %d messages", err, w.Messages)
	}
	down.Store(false)
	put(t, s, day, message(2, "{}"))

	dir := filepath.Join(t.TempDir(), "archive")
	full, err := archive.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "main"), nil, 0o600); err != nil { // where a directory must be
		t.Fatal(err)
	}
	w = archive.NewWriter(full, ref, day)
	if err := errors.Join(w.Add(t.Context(), message(2, "{}")), w.Close(t.Context())); err == nil {
		t.Error("no error from a directory that cannot be written")
	}
}

// A store that lies: what it takes is not what it returns.
type liar struct{ archive.Store }

func (l liar) Get(ctx context.Context, name string) ([]byte, error) {
	b, err := l.Store.Get(ctx, name)
	return append(b, 0), err
}

func TestWhatIsStoredIsReadBack(t *testing.T) {
	w := archive.NewWriter(liar{directory(t)}, ref, day)
	if err := w.Add(t.Context(), message(2, "{}")); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(t.Context()); !errors.Is(err, archive.ErrDamaged) {
		t.Error(err)
	}
}

func TestPlacesAreChecked(t *testing.T) {
	for where, want := range map[string]string{
		"":                             "none given",
		"ftp://x":                      "want the path of a directory",
		"s3://":                        "want s3://BUCKET/PREFIX",
		"s3://key:secret@bucket/x":     "without credentials",
		"s3://bucket/x?endpont=a":      `unknown parameter "endpont"`,
		"s3://bucket/x?endpoint=a&b=c": `unknown parameter "b"`,
	} {
		err := archive.Check(where)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(fmt.Sprint(err), "secret@") {
			t.Errorf("%q: %v", where, err)
		}
	}
	if _, err := archive.Open(t.Context(), strings.Replace(bucket(t, nil), "s3://archive/", "s3://nowhere/", 1)); err == nil ||
		!strings.Contains(err.Error(), "no bucket nowhere") {
		t.Error(err)
	}
}

// shrinking is a log of which messages leave while they are read.
type shrinking struct {
	store archive.Store
	t     *testing.T
	all   []bus.StoredMsg
	moves map[uint64]uint64 // after the first was read, everything up to the second leaves
}

func (l *shrinking) Messages(_ context.Context, _ subject.Ref, after uint64) iter.Seq2[bus.StoredMsg, error] {
	return func(yield func(bus.StoredMsg, error) bool) {
		gone := after
		for _, m := range l.all {
			if m.Seq <= gone && m.Subject == ref.Commit() || m.Seq <= after {
				continue
			}
			if !yield(m, nil) {
				return
			}
			if to := l.moves[m.Seq]; to > 0 {
				var leave []bus.StoredMsg
				for _, x := range l.all {
					if x.Seq <= to && x.Subject == ref.Commit() {
						leave = append(leave, x)
					}
				}
				put(l.t, l.store, day, leave...)
				gone = to
			}
		}
	}
}

func TestThePastIsWholeWhileMessagesLeave(t *testing.T) {
	var all []bus.StoredMsg
	prev := uint64(0)
	for i := range uint64(40) {
		m := message(i+1, "{}")
		if m.Subject = ref.Cause(subject.Input, "web"); i%3 == 2 {
			c := event.Commit{Ref: ref, Header: event.Header{CommitID: "c", Prev: prev, Now: day, Digest: "d"}}
			body, err := c.Encode()
			if err != nil {
				t.Fatal(err)
			}
			m, prev = message(i+1, string(body)), i+1
		}
		all = append(all, m)
	}
	for _, moves := range []map[uint64]uint64{
		{}, {1: 9}, {3: 3}, {3: 30}, {4: 30}, {1: 3, 10: 18, 20: 36}, {8: 12, 9: 24},
	} {
		for _, after := range []uint64{0, 3, 5, 39} {
			l := &shrinking{store: directory(t), t: t, all: all, moves: moves}
			var got []uint64
			for m, err := range archive.Past(t.Context(), l, archive.Origin{Created: day}, l.store, ref, after) {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, m.Seq)
			}
			if want := sequences(all)[after:]; !slices.Equal(got, want) {
				t.Errorf("%v after %d: %v, want %v", moves, after, got, want)
			}
		}
	}
}

// of returns messages whose bodies name the log that archived them.
func of(log string, sequences ...uint64) (out []bus.StoredMsg) {
	for _, s := range sequences {
		out = append(out, message(s, `"`+log+`"`))
	}
	return out
}

func TestARestoredLogHasThePastOfItsBackup(t *testing.T) {
	s := directory(t)
	hour := func(n int) time.Time { return day.Add(time.Duration(n) * time.Hour) }
	put(t, s, hour(0), of("a", 1, 2, 3, 4)...)
	put(t, s, hour(0), of("a", 5, 6, 7, 8)...) // the backup was made before: it has 5 and later ones
	put(t, s, hour(1), of("b", 5, 6, 9)...)    // restored from it
	put(t, s, hour(2), of("c", 9, 10)...)      // restored from a backup of that
	put(t, s, hour(3), of("d", 1)...)          // another log
	for _, c := range []struct {
		archive.Origin
		want string
	}{
		{archive.Origin{Created: hour(0)}, "1a2a3a4a5a6a7a8a"},
		{archive.Origin{Created: hour(1), Restored: true}, "1a2a3a4a5b6b9b"},
		{archive.Origin{Created: hour(2), Restored: true}, "1a2a3a4a5b6b9c10c"},
		{archive.Origin{Created: hour(2)}, "9c10c"},
		{archive.Origin{Created: hour(3)}, "1d"},
		{archive.Origin{Created: hour(4)}, ""},
	} {
		got := ""
		for m, err := range archive.Read(t.Context(), s, ref, c.Origin, 0) {
			if err != nil {
				t.Fatal(err)
			}
			got += fmt.Sprint(m.Seq, strings.Trim(string(m.Data), `"`))
		}
		if got = strings.ReplaceAll(got, " ", ""); got != c.want {
			t.Errorf("%+v: %s, want %s", c.Origin, got, c.want)
		}
	}
}
