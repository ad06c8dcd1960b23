package stdio_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/listener/contract"
	"skandha.dev/services/listener/emitter"
	"skandha.dev/services/listener/stdio"
	"skandha.dev/services/test/listenertest"
	"skandha.dev/services/test/natstest"
)

func TestConformance(t *testing.T) {
	for _, kind := range []string{"a pipe of the system", "any reader"} {
		t.Run(kind, func(t *testing.T) {
			listenertest.Run(t, func(t *testing.T, _ *journal.Journal) listenertest.Subject {
				var in io.Reader
				var out io.Writer
				if kind == "any reader" {
					in, out = io.Pipe()
				} else {
					r, w, err := os.Pipe()
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { _ = r.Close(); _ = w.Close() })
					in, out = r, w
				}
				l, err := stdio.New("lines", stdio.Config{Session: "conformance", JSON: true},
					stdio.Deps{In: in, Logger: natstest.Logger(t)})
				if err != nil {
					t.Fatal(err)
				}
				return listenertest.Subject{
					Listener: l, TakesIDs: true,
					Say: func(ctx context.Context, text, id string) error {
						b, err := json.Marshal(map[string]string{"text": text, "id": id})
						if err != nil {
							return err
						}
						done := make(chan error, 1)
						go func() {
							_, err := out.Write(append(b, '\n'))
							done <- err
						}()
						select {
						case err := <-done:
							return err
						case <-ctx.Done():
							return ctx.Err()
						}
					},
				}
			})
		})
	}
}

type rig struct {
	*stdio.Listener
	bus  *journal.Journal
	gate *listenertest.Gate
	acks *bufio.Scanner
}

// listen starts a listener of the input.
func listen(t *testing.T, cfg stdio.Config, in io.Reader) *rig {
	t.Helper()
	r := &rig{bus: natstest.Connect(t, natstest.Start(t))}
	r.gate = listenertest.NewGate(emitter.New(r.bus.Bus, "lines", &emitter.Stats{}, natstest.Logger(t)))
	read, write := io.Pipe()
	cfg.Acks = true
	var err error
	if r.Listener, err = stdio.New("lines", cfg, stdio.Deps{In: in, Out: write, Logger: natstest.Logger(t)}); err != nil {
		t.Fatal(err)
	}
	r.acks = bufio.NewScanner(read)
	if err := r.OnStart(natstest.Context(t), r.gate); err != nil {
		t.Fatal(err)
	}
	return r
}

type ack struct {
	Line     int
	ID       string
	Sequence uint64
	Error    string
}

// said reads the acks of the lines.
func (r *rig) said(t *testing.T, n int) (out []ack) {
	t.Helper()
	for range n {
		if !r.acks.Scan() {
			t.Fatalf("the acks end: %v", r.acks.Err())
		}
		var a ack
		if err := json.Unmarshal(r.acks.Bytes(), &a); err != nil {
			t.Fatal(err)
		}
		out = append(out, a)
	}
	return out
}

func (r *rig) end(t *testing.T) error {
	t.Helper()
	select {
	case <-r.Done():
	case <-natstest.Context(t).Done():
		t.Fatal("it does not end with its input")
	}
	return r.Err()
}

func texts(in []listenertest.Stored) (out []string) {
	for _, s := range in {
		out = append(out, s.Text)
	}
	return out
}

var session = subject.Ref{Agent: "main", Session: "lines"}

func TestALineIsAnInputInOrder(t *testing.T) {
	r := listen(t, stdio.Config{}, strings.NewReader("one\r\n\n{\"text\": 2}\nthree, which has no end"))
	acks := r.said(t, 3)
	if err := r.end(t); err != nil {
		t.Errorf("it ended with %v", err)
	}
	if got, want := fmt.Sprint(texts(listenertest.Log(t, r.bus,
		session))), "[one {\"text\": 2} three, which has no end]"; got != want {
		t.Errorf("the log holds %s, want %s", got, want)
	}
	if acks[0].Line != 1 || acks[1].Line != 3 || acks[2].Line != 4 || acks[0].Sequence == 0 || acks[0].ID == acks[1].ID {
		t.Errorf("acks %+v, want lines 1, 3 and 4, each with its own sequence and id", acks)
	}
}

func TestJSONLinesChooseSessionAndID(t *testing.T) {
	r := listen(t, stdio.Config{JSON: true},
		strings.NewReader(`{"text": "a", "id": "x", "session": "other", "mode": "interrupt", "more": 1}`+"\n"))
	if acks := r.said(t, 1); acks[0].ID != "x" {
		t.Errorf("ack %+v", acks[0])
	}
	in := listenertest.Log(t, r.bus, subject.Ref{Agent: "main", Session: "other"})
	if len(in) != 1 || in[0].ID != "x" || in[0].Mode != event.ModeInterrupt || in[0].Source != "stdin" {
		t.Errorf("the log holds %+v", in)
	}
}

func TestWrongLinesAreNamedAndLeftOut(t *testing.T) {
	long := strings.Repeat("x", 6*event.MaxTextBytes+5000)
	lines := []struct{ line, want string }{
		{`{"text": "good"}`, ""},
		{`nonsense`, "want a JSON object"},
		{`{"text": ""}`, "text is empty"},
		{"{\"text\": \"\xff\"}", "UTF-8"},
		{`{"text": "x", "session": "a b"}`, "session"},
		{`{"text": "x", "id": "` + strings.Repeat("i", 129) + `"}`, "id has 129 bytes"},
		{`{"text": "x", "id": "a\u0000b"}`, "control character"},
		{`{"text": "x", "mode": "later"}`, "mode"},
		{`{"text": "` + long + `"}`, "too long"},
		{`{"text": "` + strings.Repeat("y", event.MaxTextBytes+1) + `"}`, "text has"},
		{`{"text": "good, too"}`, ""},
	}
	var in strings.Builder
	for _, l := range lines {
		in.WriteString(l.line + "\n")
	}
	r := listen(t, stdio.Config{JSON: true}, strings.NewReader(in.String()))
	for i, a := range r.said(t, len(lines)) {
		if a.Line != i+1 || lines[i].want == "" && a.Error != "" || !strings.Contains(a.Error, lines[i].want) {
			t.Errorf("line %d is answered %+v, want %q", i+1, a, lines[i].want)
		}
	}
	err := r.end(t)
	if !errors.Is(err, contract.ErrInvalid) || !strings.Contains(err.Error(), "9 of 11 lines") ||
		!strings.Contains(err.Error(), "line 2") {
		t.Errorf("it ended with %v; want how many lines were refused, and the first", err)
	}
	if got := fmt.Sprint(texts(listenertest.Log(t, r.bus, session))); got != "[good good, too]" {
		t.Errorf("the log holds %s", got)
	}
}

func TestStoppingEmitsTheWholeLinesThatWereRead(t *testing.T) {
	in, out := io.Pipe()
	r := listen(t, stdio.Config{}, in)
	r.gate.Hold()
	if _, err := io.WriteString(out, "one\ntwo\nthree\nfo"); err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, "the first is on its way", func() bool { return len(r.gate.Seen()) == 1 })
	stopped := make(chan error, 1)
	ctx := natstest.Context(t)
	go func() { stopped <- r.OnStop(ctx) }()
	r.gate.Release()
	r.said(t, 3)
	if err := <-stopped; !errors.Is(err, contract.ErrNotTaken) ||
		!strings.Contains(err.Error(), "2 bytes of the incomplete line 4") {
		t.Errorf("OnStop: %v; want the half line named", err)
	}
	if got := fmt.Sprint(texts(listenertest.Log(t, r.bus, session))); got != "[one two three]" {
		t.Errorf("the log holds %s", got)
	}
}

func TestALineSurvivesARestartOfTheBus(t *testing.T) {
	p := natstest.StartProcess(t, "", 0)
	b := natstest.ConnectURL(t, p.URL())
	in, out := io.Pipe()
	l, err := stdio.New("lines", stdio.Config{}, stdio.Deps{In: in, Logger: natstest.Logger(t)})
	if err != nil {
		t.Fatal(err)
	}
	stats := &emitter.Stats{}
	gate := listenertest.NewGate(emitter.New(b.Bus, "lines", stats, natstest.Logger(t)))
	if err := l.OnStart(natstest.Context(t), gate); err != nil {
		t.Fatal(err)
	}
	say := func(s string) {
		t.Helper()
		if _, err := io.WriteString(out, s+"\n"); err != nil {
			t.Fatal(err)
		}
	}
	say("before")
	natstest.Eventually(t, "the first", func() bool { return stats.Taken.Load() == 1 })
	p.Kill()
	say("while it is away")
	natstest.Eventually(t, "the second is on its way", func() bool { return len(gate.Seen()) == 2 })
	p.Restart()
	natstest.Eventually(t, "the second", func() bool { return stats.Taken.Load() == 2 })
	if got := fmt.Sprint(texts(listenertest.Log(t, b, session))); got != "[before while it is away]" {
		t.Errorf("the log holds %s", got)
	}
	if err := l.OnStop(natstest.Context(t)); err != nil {
		t.Errorf("OnStop: %v", err)
	}
}
