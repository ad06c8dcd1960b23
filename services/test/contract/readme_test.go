package contract

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/test/natstest"
)

var python = regexp.MustCompile("(?s)```python\n(.*?)```")

// snippets are the Python programs of schemas/README.md: the second begins with
// the connection of the first, as the text says.
func snippets(t *testing.T) (listener, tool string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	m := python.FindAllStringSubmatch(string(b), -1)
	if len(m) != 2 {
		t.Fatalf("schemas/README.md has %d Python programs, want 2", len(m))
	}
	prelude, _, ok := strings.Cut(m[0][1], "say('CONNECT")
	if !ok {
		t.Fatal("the first program has no CONNECT")
	}
	return m[0][1], prelude + m[1][1]
}

// run starts a Python program with the server's address and returns what it prints.
func run(t *testing.T, program, serverURL string) io.Reader {
	t.Helper()
	interpreter, err := exec.LookPath("python3")
	if err != nil {
		if os.Getenv("SKANDHA_REQUIRE") == "all" {
			t.Fatalf("python3 is needed to run schemas/README.md: %v", err)
		}
		t.Skipf("NOT TESTED: the programs of schemas/README.md, for want of python3: %v", err)
	}
	u, err := url.Parse(serverURL)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, interpreter, "-c", program, u.Hostname(), u.Port())
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // killed, or done
	})
	return out
}

func TestTheListenerOfTheReadmeGetsItsTerminalEvent(t *testing.T) {
	listener, _ := snippets(t)
	srv := natstest.Start(t, natstest.WithTCP())
	b := natstest.Connect(t, srv)
	ref := subject.Ref{Agent: "demo", Session: "s1"}
	lines := bufio.NewScanner(run(t, listener, srv.ClientURL()))
	if !lines.Scan() || lines.Text() != "acknowledged {'stream': 'SESSIONS', 'seq': 1}" {
		t.Fatalf("the program prints %q, %v", lines.Text(), lines.Err())
	}
	// Core's part: take the input from the log, publish the copy of its terminal event.
	stored, err := b.Conn().RequestWithContext(natstest.Context(t), "$JS.API.DIRECT.GET.SESSIONS", []byte(`{"seq":1}`))
	if err != nil {
		t.Fatal(err)
	}
	var in event.Input
	if err := event.DecodeCause(stored.Data, &in); err != nil || in.Check() != nil {
		t.Fatalf("%s: %v", stored.Data, err)
	}
	e := event.New(ref, "c1.1", event.Source, event.Recorded{Sequence: 1, Input: in.Text, Answer: "hi"})
	if err := b.PublishLive(context.Background(), ref, e.Live(), nil, e.AppendJSON(nil)); err != nil {
		t.Fatal(err)
	}
	const want = "skandha.reflect.recorded.v1 {'sequence': 1, 'input': 'hello', 'answer': 'hi'"
	if !lines.Scan() || !strings.HasPrefix(lines.Text(), want) {
		t.Errorf("the program prints %q, %v, want %s…", lines.Text(), lines.Err(), want)
	}
	if lines.Scan() {
		t.Errorf("the program goes on: %q", lines.Text())
	}
}

func TestTheToolOfTheReadmeAnswersAsTheContractSays(t *testing.T) {
	_, program := snippets(t)
	srv := natstest.Start(t, natstest.WithTCP())
	b := natstest.Connect(t, srv)
	run(t, program, srv.ClientURL())
	body, err := os.ReadFile(filepath.Join(root, "examples/valid/tool/call/call.json"))
	if err != nil {
		t.Fatal(err)
	}
	body = []byte(strings.Replace(string(body), `{"city": "Oslo"}`, `{"zone": "UTC"}`, 1))
	caller, err := b.NewCaller()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = caller.Close() }()
	var answer []byte
	natstest.Eventually(t, "the tool listens", func() bool {
		answer, err = caller.Request(natstest.Context(t), subject.Tool("clock", "clock:now"), "clock", body)
		return err == nil
	})
	if err := files(t).schema(t, "tool/result").Validate(decode(t, answer)); err != nil {
		t.Errorf("%s: %v", answer, err)
	}
	var r tool.Result
	if err := json.Unmarshal(answer, &r); err != nil || !r.Success ||
		string(r.Data) != `{"call": "t42-p1-c0", "zone": "UTC"}` {
		t.Errorf("%s: %v", answer, err)
	}
}
