package plugintest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/services/internal/journal"
	index "skandha.dev/services/internal/memory"
	stored "skandha.dev/services/internal/memory/plugin"
	"skandha.dev/services/test/memorytest"
	"skandha.dev/services/test/natstest"
)

// indexRig is a bus with a core's registry, and the example plugin as a process.
type indexRig struct {
	*coreRig
	url     string
	program string
	file    string // of the plugin; "": it keeps nothing
	running *exec.Cmd
	n       int
}

func newIndexRig(t *testing.T, file string) *indexRig {
	t.Helper()
	s := natstest.StartProcess(t, "", 0)
	r := &indexRig{
		coreRig: newCoreRigOn(t, bus.Config{URL: s.URL()}), url: s.URL(), program: build(t, "index"), file: file,
	}
	r.start()
	t.Cleanup(func() {
		if r.running != nil {
			r.kill()
		}
	})
	return r
}

func (r *indexRig) start() {
	r.Helper()
	log := &lines{}
	r.running = exec.Command(r.program)
	r.running.Env = append(os.Environ(), "SKANDHA_NATS="+r.url, "INDEX_FILE="+r.file)
	r.running.Stderr = log
	if err := r.running.Start(); err != nil {
		r.Fatal(err)
	}
	natstest.Eventually(r, "the plugin is active", func() bool { return log.count("plugin is active") == 1 })
}

// kill kills the plugin as kill -9 does.
func (r *indexRig) kill() {
	r.Helper()
	if err := r.running.Process.Kill(); err != nil {
		r.Fatal(err)
	}
	_ = r.running.Wait() // killed
	r.running = nil
}

// collection names a new one.
func (r *indexRig) collection() string {
	r.n++
	return fmt.Sprintf("test-%d", r.n)
}

// open opens a store on a separate connection, as another core does.
func (r *indexRig) open(t *testing.T, b *journal.Journal, parameters string) *stored.Store {
	t.Helper()
	return openIndex(t, b, "plugin://index?timeout=1m&"+parameters)
}

func openIndex(t *testing.T, b *journal.Journal, url string) *stored.Store {
	t.Helper()
	s, err := stored.Open(stored.Config{URL: url, Bus: b, Logger: natstest.Logger(t), Grace: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// The suite of the stores of memories, on a plugin that is another process.
func TestIndexOfMemories(t *testing.T) {
	r := newIndexRig(t, "")
	b := r.dial()
	memorytest.Run(t, func(t *testing.T) index.Store { return r.open(t, b, "collection="+r.collection()) })
}

func TestIndexOfMemoriesReopened(t *testing.T) {
	r := newIndexRig(t, "")
	memorytest.RunReopen(t, func(t *testing.T) func() index.Store {
		place := r.collection()
		return func() index.Store { return r.open(t, r.dial(), "collection="+place) }
	})
}

// The plugin is killed; another process begins with nothing.
func TestOutageOfTheIndexOfMemories(t *testing.T) {
	r := newIndexRig(t, "")
	memorytest.RunOutage(t, r.open(t, r.dial(), ""), r.kill, r.start)
}

// The plugin is killed; another process begins with all that was stored.
func TestOutageOfAnIndexOfMemoriesInAFile(t *testing.T) {
	r := newIndexRig(t, filepath.Join(t.TempDir(), "index.jsonl"))
	s := r.open(t, r.dial(), "")
	if err := s.SetPosition(t.Context(), 7); err != nil {
		t.Fatal(err)
	}
	memorytest.RunOutage(t, s, r.kill, r.start)
	if at, err := s.Position(t.Context()); at != 7 || err != nil {
		t.Errorf("position %d, %v", at, err)
	}
}
