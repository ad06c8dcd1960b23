package sensor_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"skandha.dev/services/internal/journal"
	"skandha.dev/services/listener/contract"
	"skandha.dev/services/listener/emitter"
	"skandha.dev/services/listener/mapping"
	"skandha.dev/services/listener/sensor"
	"skandha.dev/services/test/listenertest"
	"skandha.dev/services/test/natstest"
)

// rig runs listeners of one configuration, one after another.
type rig struct {
	t   *testing.T
	bus *journal.Journal
	cfg sensor.Config
	l   *sensor.Listener
}

func newRig(t *testing.T, cfg sensor.Config) *rig {
	t.Helper()
	return &rig{t: t, bus: natstest.Connect(t, natstest.Start(t)), cfg: cfg}
}

func (r *rig) start() {
	r.t.Helper()
	r.l = newListener(r.t, r.bus, r.cfg)
	e := emitter.New(r.bus.Bus, r.l.Name(), &emitter.Stats{}, natstest.Logger(r.t))
	if err := r.l.OnStart(natstest.Context(r.t), e); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(r.stop)
}

func (r *rig) stop() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // in haste, as a process that dies
	_ = r.l.OnStop(ctx)
}

func (r *rig) texts() (out []string) {
	for _, in := range listenertest.Log(r.t, r.bus, listenertest.Ref) {
		out = append(out, in.Text)
	}
	return out
}

func (r *rig) want(texts ...string) {
	r.t.Helper()
	natstest.Eventually(r.t, fmt.Sprintf("the inputs %q, and not %q", texts, r.texts()), func() bool {
		return slices.Equal(r.texts(), texts)
	})
}

func (r *rig) state(s contract.State, reason string) {
	r.t.Helper()
	natstest.Eventually(r.t, fmt.Sprintf("%s because of %q", s, reason), func() bool {
		h := r.l.Health()
		return h.State == s && strings.Contains(h.Reason, reason)
	})
}

func TestAFileIsFollowed(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "log")
	write(t, path, "before\n")
	r := newRig(t, sensor.Config{File: &sensor.File{Path: path, Interval: quick, MaxLine: 100}, Config: each()})
	r.start()
	r.state(contract.StateOK, "")
	write(t, path, "one\r\ntw")
	r.want("one")
	write(t, path, "o\n\n"+strings.Repeat("x", 5000))
	r.want("one", "two")
	write(t, path, strings.Repeat("x", 300)+"\nafter the long line\n")
	r.want("one", "two", "after the long line")
	// Rotated by renaming, with a line that comes late.
	old := filepath.Join(dir, "log.1")
	if err := os.Rename(path, old); err != nil {
		t.Fatal(err)
	}
	write(t, old, "late\n")
	write(t, path, "new file\n")
	r.want("one", "two", "after the long line", "late", "new file")
	// Truncated.
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	write(t, path, "anew\n")
	r.want("one", "two", "after the long line", "late", "new file", "anew")
}

func TestAFileIsReadOnAfterARestart(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "log")
	r := newRig(t, sensor.Config{File: &sensor.File{Path: path, Interval: quick, From: sensor.FromStart}, Config: each()})
	r.start()
	r.state(contract.StateDown, "no such file")
	write(t, path, "one\n")
	r.want("one")
	r.stop()
	write(t, path, "two\n")
	if err := os.Rename(path, filepath.Join(dir, "log.old")); err != nil { // meanwhile
		t.Fatal(err)
	}
	write(t, path, "three\n")
	r.start()
	r.want("one", "two", "three")
	r.stop()
	r.start()
	write(t, path, "four\n")
	r.want("one", "two", "three", "four")
}

func TestAPipeIsNoFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, sensor.Config{File: &sensor.File{Path: path, Interval: quick}, Config: each()})
	r.start()
	r.state(contract.StateDown, "not a regular file")
}

func TestADirectoryIsWatched(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "known.txt"), "x")
	rule := mapping.Config{Session: string(listenertest.Ref.Session), TextTemplate: "{{.data.event}} {{.data.name}} {{.data.size}}"}
	r := newRig(t, sensor.Config{
		Directory: &sensor.Directory{Path: dir, Pattern: "*.txt", Interval: quick, Settle: quick}, Config: rule,
	})
	r.start()
	r.state(contract.StateOK, "")
	write(t, filepath.Join(dir, "a.txt"), "12")
	write(t, filepath.Join(dir, "a.pdf"), "12")
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "link.txt")); err != nil {
		t.Fatal(err)
	}
	r.want("new a.txt 2")
	write(t, filepath.Join(dir, "known.txt"), "yz")
	r.want("new a.txt 2", "changed known.txt 3")
	r.stop()
	write(t, filepath.Join(dir, "b.txt"), "")
	if err := os.Remove(filepath.Join(dir, "a.txt")); err != nil {
		t.Fatal(err)
	}
	r.start()
	r.want("new a.txt 2", "changed known.txt 3", "new b.txt 0")
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	r.state(contract.StateDown, "no such file")
}

func TestACommandIsRun(t *testing.T) {
	t.Setenv("SKANDHA_TEST_SECRET", "hush")
	t.Setenv("SKANDHA_TEST_OTHER", "leaked")
	r := newRig(t, sensor.Config{
		Command: &sensor.Command{
			Args: []string{"/bin/sh", "-c", `echo "$TOKEN$SKANDHA_TEST_OTHER"`}, Env: map[string]string{"TOKEN": "env:SKANDHA_TEST_SECRET"},
		},
		Config: each(),
	})
	r.start()
	r.want("hush\n")
}

func TestCommandsThatFailSayWhy(t *testing.T) {
	for name, c := range map[string]struct {
		script, reason string
		change         func(*sensor.Command)
	}{
		"it fails":         {"echo broken >&2; exit 3", "exit status 3: broken", nil},
		"it says too much": {"head -c 1000 /dev/zero", "more than 10 bytes", func(c *sensor.Command) { c.MaxBytes = 10 }},
		"it is missing":    {"", "starting the command", func(c *sensor.Command) { c.Args = []string{"/no/such/program"} }},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := &sensor.Command{Args: []string{"/bin/sh", "-c", c.script}}
			if c.change != nil {
				c.change(cmd)
			}
			r := newRig(t, sensor.Config{Command: cmd, Config: each()})
			r.start()
			r.state(contract.StateDown, c.reason)
		})
	}
}

// A command that hangs is killed with all that it has started.
func TestACommandThatHangsIsKilledWithItsGroup(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	r := newRig(t, sensor.Config{
		Command: &sensor.Command{
			Args: []string{"/bin/sh", "-c", "sleep 1000 & echo $! > " + file + "; wait"}, Poll: sensor.Poll{Timeout: 300 * time.Millisecond},
		},
		Config: each(),
	})
	r.start()
	r.state(contract.StateDown, "no answer within 300ms")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, "the child of the command has ended", func() bool {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err != nil || strings.Contains(string(status), ") Z ") // ended, if nobody has collected it
	})
}

func TestAnAddressIsPolled(t *testing.T) {
	var answer atomic.Pointer[func(http.ResponseWriter)]
	say := func(f func(http.ResponseWriter)) { answer.Store(&f) }
	say(func(w http.ResponseWriter) { _, _ = fmt.Fprint(w, `{"t":21}`) })
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer x" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		(*answer.Load())(w)
	}))
	defer server.Close()
	t.Setenv("SKANDHA_TEST_SECRET", "Bearer x")
	r := newRig(t, sensor.Config{
		HTTP: &sensor.HTTP{
			URL: server.URL, Headers: map[string]string{"Authorization": "env:SKANDHA_TEST_SECRET"},
			Poll: sensor.Poll{Interval: time.Second, MaxBytes: 100, Timeout: 500 * time.Millisecond},
		},
		Config: mapping.Config{Session: string(listenertest.Ref.Session), ValueField: "/t", OnChange: true},
	})
	r.start()
	r.want("probe is now 21")
	for reason, f := range map[string]func(http.ResponseWriter){
		"500 Internal Server Error: oh": func(w http.ResponseWriter) { http.Error(w, "oh\nno", http.StatusInternalServerError) },
		"redirects are not followed":    func(w http.ResponseWriter) { w.Header().Set("Location", "/x"); w.WriteHeader(http.StatusFound) },
		"more than 100 bytes":           func(w http.ResponseWriter) { _, _ = w.Write(make([]byte, 101)) },
	} {
		say(f)
		r.state(contract.StateDown, reason)
	}
	say(func(w http.ResponseWriter) { _, _ = fmt.Fprint(w, `{}`) })
	r.state(contract.StateDegraded, "it has no /t")
	say(func(w http.ResponseWriter) { _, _ = fmt.Fprint(w, `{"t":22}`) })
	r.want("probe is now 21", "probe is now 22, was 21")
	r.state(contract.StateOK, "")
}

func TestPrometheusIsAsked(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/query" || r.URL.Query().Get("query") != "up == 0" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		_, _ = fmt.Fprint(w, `{"status":"success","data":{"resultType":"vector","result":[
			{"metric":{"__name__":"up","job":"b","instance":"x"},"value":[1.5,"0"]},
			{"metric":{"__name__":"up","job":"a"},"value":[1.5,"NaN"]},
			{"metric":{"__name__":"up"},"value":[1.5,"0.5"]}]}}`)
	}))
	defer server.Close()
	r := newRig(t, sensor.Config{
		Prometheus: &sensor.Prometheus{URL: server.URL, Query: "up == 0"},
		Config:     mapping.Config{Session: string(listenertest.Ref.Session), Below: new(1.0), TextTemplate: "{{.name}} {{.value}} {{json .data.metric}}"},
	})
	r.start()
	r.want(`up{instance="x",job="b"} 0 {"__name__":"up","instance":"x","job":"b"}`, `up 0.5 {"__name__":"up"}`)
}

func TestWrongConfigurationsNameTheField(t *testing.T) {
	for want, cfg := range map[string]sensor.Config{
		"0 of them are set": {Config: each()},
		"2 of them are set": {Config: each(), File: &sensor.File{Path: "/x"}, HTTP: &sensor.HTTP{URL: "http://x"}},
		"http.url":          {Config: each(), HTTP: &sensor.HTTP{URL: "ftp://x"}}, "http.interval": {Config: each(), HTTP: &sensor.HTTP{URL: "http://x", Poll: sensor.Poll{Interval: time.Millisecond}}},
		"command.args":     {Config: each(), Command: &sensor.Command{}},
		"file.path":        {Config: each(), File: &sensor.File{Path: "x"}},
		"file.from":        {Config: each(), File: &sensor.File{Path: "/x", From: "middle"}},
		"directory.patter": {Config: each(), Directory: &sensor.Directory{Path: "/x", Pattern: "["}},
		"prometheus.query": {Config: each(), Prometheus: &sensor.Prometheus{URL: "http://x"}},
		"session":          {File: &sensor.File{Path: "/x"}},
	} {
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
