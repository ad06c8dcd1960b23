package deps

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"skandha.dev/services/sandbox/driver"
)

// kept returns the names of the packages whose sets exist.
func (b *bench) kept(ids map[string]string) (out []string) {
	sets, err := b.sandboxes.Sets(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	for _, s := range sets {
		out = append(out, ids[s.ID])
	}
	slices.Sort(out)
	return out
}

// shelves keeps sets, which are empty: pip does not matter for what is kept and removed.
type shelves struct{ *sandboxes }

func (s shelves) Install(_ context.Context, in driver.Install) error {
	err := os.Mkdir(filepath.Join(s.dir, in.ID), 0o755)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

func keeping(t testing.TB, cfg Config) *bench {
	t.Helper()
	b := &bench{t: t, sandboxes: emptySandboxes(t)}
	m, err := New(cfg, shelves{b.sandboxes})
	if err != nil {
		t.Fatal(err)
	}
	b.Manager = m
	return b
}

// hours gives the manager a clock that a test turns.
func (b *bench) hours() (later func()) {
	var mu sync.Mutex
	now := time.Now()
	b.now = func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		return now
	}
	return func() {
		mu.Lock()
		defer mu.Unlock()
		now = now.Add(time.Hour)
	}
}

func TestWhatHasNotBeenUsedForLongestIsRemoved(t *testing.T) {
	for name, cfg := range map[string]Config{
		"by number": {MaxSets: 2},
		"by bytes":  {MaxBytes: 1 << 20, MaxTotalBytes: 2 << 20}, // a set counts as 1 MiB here
	} {
		t.Run(name, func(t *testing.T) {
			b := keeping(t, cfg)
			later := b.hours()
			ids := map[string]string{}
			for _, ask := range []string{"a", "b", "a", "c", "a"} { // b is the oldest when c comes
				id, err := b.ensure(ask)
				if err != nil {
					t.Fatal(err)
				}
				ids[id] = ask
				later()
			}
			if got := fmt.Sprint(b.kept(ids)); got != "[a c]" {
				t.Fatalf("%s are kept, want a and c", got)
			}
			for id, name := range ids { // what a sandbox uses stays; then the next one goes
				b.sandboxes.inUse[id] = name == "c"
			}
			id, err := b.ensure("d")
			if err != nil {
				t.Fatal(err)
			}
			ids[id] = "d"
			if got := fmt.Sprint(b.kept(ids)); got != "[c d]" {
				t.Errorf("%s are kept, want c, which is in use, and d", got)
			}
		})
	}
}

func TestTheDriverKnowsOfUseToo(t *testing.T) {
	b := keeping(t, Config{MaxSets: 2})
	later := b.hours()
	ids := map[string]string{}
	for _, ask := range []string{"a", "b"} {
		id, err := b.ensure(ask)
		if err != nil {
			t.Fatal(err)
		}
		ids[id] = ask
		later()
	}
	for id, name := range ids {
		if name == "a" {
			b.sandboxes.used[id] = b.now()
		}
	}
	later()
	id, err := b.ensure("c")
	if err != nil {
		t.Fatal(err)
	}
	ids[id] = "c"
	if got := fmt.Sprint(b.kept(ids)); got != "[a c]" {
		t.Errorf("%s are kept, want a, which a sandbox has used since, and c", got)
	}
}

// A set that Ensure has just returned stays: its sandbox may be about to start.
func TestWhatHasJustBeenGivenOutStays(t *testing.T) {
	b := keeping(t, Config{MaxSets: 1})
	later := b.hours()
	ids := map[string]string{}
	for _, ask := range []string{"a", "b"} {
		id, err := b.ensure(ask)
		if err != nil {
			t.Fatal(err)
		}
		ids[id] = ask
	}
	if got := fmt.Sprint(b.kept(ids)); got != "[a b]" {
		t.Errorf("%s are kept, want both", got)
	}
	later()
	if n, err := b.Collect(t.Context()); n != 1 || err != nil {
		t.Errorf("collecting removes %d, %v; want one", n, err)
	}
}

// With concurrent Ensure and Collect, a set that Ensure has returned exists, even if it was
// due for removal.
func TestASetThatIsGivenOutIsThere(t *testing.T) {
	b := keeping(t, Config{MaxSets: 1})
	later := b.hours()
	removed := 0
	for range 200 {
		later()
		var both sync.WaitGroup
		both.Go(func() {
			n, err := b.Collect(t.Context())
			if err != nil {
				t.Error(err)
			}
			removed += n
		})
		for _, ask := range []string{"a", "b"} {
			both.Go(func() {
				id, err := b.ensure(ask)
				if err != nil {
					t.Error(err)
				} else if _, err := os.Stat(filepath.Join(b.sandboxes.dir, id)); err != nil {
					t.Errorf("the set of %s is not there: %v", ask, err)
				}
			})
		}
		both.Wait()
	}
	if removed == 0 {
		t.Log("Ensure was always first")
	}
}

// queue is a driver whose installations end when a test says so.
type queue struct {
	shelves
	begun, end chan string
}

func (q queue) Install(ctx context.Context, in driver.Install) error {
	q.begun <- in.ID
	select {
	case <-q.end:
		return q.shelves.Install(ctx, in)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// However many sessions request packages, only a few installations run concurrently.
func TestInstallationsAreBoundedInNumber(t *testing.T) {
	q := queue{shelves{emptySandboxes(t)}, make(chan string, 8), make(chan string)}
	m, err := New(Config{Installs: 1}, q)
	if err != nil {
		t.Fatal(err)
	}
	ensure := func(ctx context.Context, name string) (said, end chan string) {
		said, end = make(chan string, 8), make(chan string, 1)
		go func() {
			_, err := m.Ensure(ctx, want(t, name), func(line string) { said <- line })
			end <- fmt.Sprint(err)
		}()
		return said, end
	}
	_, end1 := ensure(t.Context(), "one")
	<-q.begun
	said2, end2 := ensure(t.Context(), "two")
	ctx, leave := context.WithCancel(t.Context())
	said3, end3 := ensure(ctx, "three")
	for _, said := range []chan string{said2, said3} {
		if line := <-said; line != "waiting for other installations" {
			t.Errorf("progress while it waits: %q", line)
		}
	}
	leave()
	if err := <-end3; !strings.Contains(err, "canceled") {
		t.Errorf("after it has left: %s", err)
	}
	select {
	case id := <-q.begun:
		t.Errorf("%s is installed beside another set", id)
	default:
	}
	q.end <- ""
	<-q.begun
	q.end <- ""
	for _, end := range []chan string{end1, end2} {
		if err := <-end; err != "<nil>" {
			t.Error(err)
		}
	}
}
