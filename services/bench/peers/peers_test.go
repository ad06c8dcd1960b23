package peers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestMain makes this program an engine when it is started as one.
func TestMain(m *testing.M) {
	kind := ""
	if len(os.Args) > 2 && os.Args[1] == "engine" {
		kind = os.Args[2]
	}
	switch kind {
	case "":
		os.Exit(m.Run())
	case "silent":
		fmt.Fprintln(os.Stderr, "no database")
		os.Exit(1)
	}
	hello := Hello{Version: "1", Durable: "not at all"}
	if kind == "missing" {
		hello = Hello{Missing: "no server in PATH"}
	}
	err := Serve(context.Background(), hello, os.Stdin, os.Stdout, func(context.Context) (Session, error) {
		return fake(kind), nil
	})
	if err != nil {
		os.Exit(1)
	}
}

// fake is a session of a test's engine.
type fake string

func (f fake) Turn(ctx context.Context) error {
	switch f {
	case "failing":
		return errors.New("the tool has failed")
	case "hanging":
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

func (fake) Close() {}

func engineOf(t *testing.T, kind string) Engine {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Engine{Name: kind, Argv: []string{self, "engine", kind}, Dir: t.TempDir()}
}

var brief = Options{Rounds: 3, Alone: 4, Sessions: 5, Each: 2, Idle: time.Millisecond}

func TestEnginesAreMeasuredAndOneThatIsMissingSaysWhy(t *testing.T) {
	got, err := Measure(t.Context(), []Engine{engineOf(t, "one"), engineOf(t, "missing"), engineOf(t, "two")}, brief)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range []int{0, 2} {
		if r := got[i]; r.Median <= 0 || r.P95 < r.Median || r.Rate <= 0 || r.Version != "1" {
			t.Errorf("%+v", r)
		}
	}
	if r := got[1]; r.Missing != "no server in PATH" || r.Median != 0 {
		t.Errorf("%+v", r)
	}
	var table bytes.Buffer
	if err := Table(&table, got, brief); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| one 1 | not at all |", "missing is missing: no server in PATH", "one beside two: median"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("%q is not in\n%s", want, &table)
		}
	}
}

func TestAnEngineThatFailsHasTheReasonAndTheOthersAreMeasured(t *testing.T) {
	reasons := []string{"", "failing: the tool has failed", "silent did not start: EOF: no database"}
	engines := []Engine{engineOf(t, "one"), engineOf(t, "failing"), engineOf(t, "silent")}
	got, err := Measure(t.Context(), engines, brief)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range reasons {
		if !strings.HasPrefix(got[i].Missing, want) || (got[i].Missing == "") != (want == "") {
			t.Errorf("%s is missing: %q; want %q", engines[i].Name, got[i].Missing, want)
		}
		if measured := got[i].Rate > 0; measured != (want == "") {
			t.Errorf("%+v", got[i])
		}
	}
	if _, err := Measure(t.Context(), engines[1:], brief); err == nil || !strings.Contains(err.Error(), "the tool has failed") {
		t.Errorf("what the others are compared with fails: %v", err)
	}
}

func TestTheEndOfTheInputEndsTurnsThatHang(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	r, err := start(ctx, engineOf(t, "hanging"))
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := r.ask(ctx, Request{Sessions: 1, Turns: 1}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	r.stop()
	if !r.cmd.ProcessState.Success() {
		t.Errorf("the program was killed: %s", r.cmd.ProcessState)
	}
}

func TestServeAnswersEachRequest(t *testing.T) {
	var out bytes.Buffer
	in := `{"sessions":2,"turns":3}` + "\n" + `{"sessions":1,"turns":1}` + "\n"
	open := func(context.Context) (Session, error) { return fake(""), nil }
	reads, writes := io.Pipe()
	lines := make(chan error, 1)
	go func() { lines <- Serve(t.Context(), Hello{Version: "1"}, reads, &out, open) }()
	if _, err := io.WriteString(writes, in); err != nil {
		t.Fatal(err)
	}
	if err := writes.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-lines; err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(&out)
	var hello Hello
	var first Answer
	if err := errors.Join(d.Decode(&hello), d.Decode(&first)); err != nil {
		t.Fatal(err)
	}
	if hello.Version != "1" || len(first.Took) != 6 || first.Total <= 0 || first.Error != "" {
		t.Errorf("%+v, %+v", hello, first)
	}
}

func TestProcessorTimeIsThatOfAProcessAndItsDescendants(t *testing.T) {
	proc := t.TempDir()
	for pid, line := range map[string]string{
		"10": "10 (engine) S 1 10 10 0 -1 0 0 0 0 0 100 20 3 0 20 0 1 0 5",
		"11": "11 (a server) (x) S 10 10 10 0 -1 0 0 0 0 0 1 1 1 1 20 0 1 0 5",
		"12": "12 (backend) S 11 12 12 0 -1 0 0 0 0 0 1000 0 0 0 20 0 1 0 5",
		"13": "13 (another's) S 1 13 13 0 -1 0 0 0 0 0 9 9 9 9 20 0 1 0 5",
	} {
		if err := os.Mkdir(filepath.Join(proc, pid), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(proc, pid, "stat"), []byte(line), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := processorTime(proc, 10)
	if want := 1127 * tick; err != nil || got != want {
		t.Errorf("%s, %v; want %s", got, err, want)
	}
	if _, err := processorTime(proc, 14); err == nil {
		t.Error("a process that is not there has used something")
	}
}

func TestTheTableSaysInWhatWeAreBehind(t *testing.T) {
	ours := Result{Name: "skandha", Median: 4 * time.Millisecond, Rate: 100, Turn: 10 * time.Millisecond}
	other := Result{Name: "other", Median: 5 * time.Millisecond, Rate: 400, Turn: 5 * time.Millisecond}
	want := "skandha beside other: median 0.80 × (ahead), turns/s per core 0.50 × (BEHIND), turns/s 0.25 × (BEHIND)"
	if got := compare(ours, other); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}
