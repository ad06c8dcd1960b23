package agent_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"skandha.dev/services/sandbox/agent"
)

// liar is an agent that sends what a test wants.
type liar struct {
	net.Conn
}

// lie starts a Conn on a liar that has reported itself ready.
func lie(t testing.TB) (*agent.Conn, *liar) {
	t.Helper()
	ours, theirs := net.Pipe()
	l := &liar{Conn: theirs}
	t.Cleanup(func() { _ = theirs.Close() })
	go func() {
		for range 3 {
			l.block()
		}
		l.say('r', 0, `{"version":1}`)
	}()
	c, err := agent.Open(t.Context(), ours)
	if err != nil {
		t.Fatal(err)
	}
	return c, l
}

func (l *liar) block() []byte {
	var n uint32
	if binary.Read(l, binary.BigEndian, &n) != nil {
		return nil
	}
	b := make([]byte, n)
	_, _ = io.ReadFull(l, b)
	return b
}

// hear reads a frame and returns its kind and id.
func (l *liar) hear() (byte, uint32) {
	b := l.block()
	if len(b) < 5 {
		return 0, 0
	}
	return b[0], binary.BigEndian.Uint32(b[1:])
}

func frameOf(kind byte, id uint32, payload string) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(payload)+5))
	b = binary.BigEndian.AppendUint32(append(b, kind), id)
	return append(b, payload...)
}

func (l *liar) say(kind byte, id uint32, payload string) { _, _ = l.Write(frameOf(kind, id, payload)) }

// Invalid data from the agent ends the sandbox, and nothing waits.
func TestAnAgentThatMakesNoSenseIsGivenUp(t *testing.T) {
	run := func(c *agent.Conn) error {
		_, err := c.Run(context.Background(),
			agent.Run{Kind: agent.Python, MaxOutput: 100, Output: func(agent.Stream, []byte) {}})
		return err
	}
	read := func(c *agent.Conn) error {
		_, _, err := c.Read(context.Background(), "x", 0, 100)
		return err
	}
	list := func(c *agent.Conn) error { return second(c.List(context.Background(), "")) }
	exit := `{"exit":{"code":0,"out":[0,0,0],"err":[0,0,0]}}`
	for name, tc := range map[string]struct {
		ask  func(*agent.Conn) error
		say  func(l *liar, id uint32)
		want string
	}{
		"it ends": {run, func(l *liar, _ uint32) { _ = l.Close() }, "has ended"},
		"inside a frame": {
			run, func(l *liar, id uint32) { _, _ = l.Write(frameOf('a', id, exit)[:20]); _ = l.Close() }, "inside a frame",
		},
		"a frame without end": {
			run, func(l *liar, _ uint32) { _, _ = l.Write([]byte{255, 255, 255, 255, 'a', 0, 0, 0, 1}) }, "4294967295 bytes",
		},
		"a frame without a head":    {run, func(l *liar, _ uint32) { _, _ = l.Write(make([]byte, 9)) }, "0 bytes"},
		"an unknown kind":           {run, func(l *liar, id uint32) { l.say('?', id, "x") }, "'?'"},
		"an unknown operation":      {run, func(l *liar, id uint32) { l.say('a', id+7, exit) }, "unknown operation"},
		"operation 0":               {run, func(l *liar, _ uint32) { l.say('a', 0, exit) }, "unknown operation"},
		"ready again":               {run, func(l *liar, _ uint32) { l.say('r', 0, `{}`) }, "unknown operation"},
		"an answer that is no JSON": {run, func(l *liar, id uint32) { l.say('a', id, "no") }, "invalid answer"},
		"an answer without an exit": {run, func(l *liar, id uint32) { l.say('a', id, "{}") }, "no exit"},
		"nested JSON": {
			read, func(l *liar, id uint32) { l.say('a', id, strings.Repeat("[", 1000)+strings.Repeat("]", 1000)) },
			"depth of 1000",
		},
		"output of no stream": {run, func(l *liar, id uint32) { l.say('k', id, "\x02x") }, "unknown stream"},
		"empty output":        {run, func(l *liar, id uint32) { l.say('o', id, "\x00") }, "unknown stream"},
		"too much output": {
			run, func(l *liar, id uint32) { l.say('k', id, "\x00"+strings.Repeat("x", 101)) }, "more output",
		},
		"too much live output": {
			run, func(l *liar, id uint32) { l.say('o', id, "\x01"+strings.Repeat("x", 101)) }, "more output",
		},
		"output of a file operation": {read, func(l *liar, id uint32) { l.say('k', id, "\x00x") }, "more output"},
		"output that does not add up": {run, func(l *liar, id uint32) {
			l.say('k', id, "\x00abc")
			l.say('a', id, `{"exit":{"out":[5,2,2],"err":[0,0,0]}}`)
		}, "count of the agent"},
		"countless processes": {run, func(l *liar, id uint32) {
			l.say('a', id, `{"exit":{"strays":9223372036854775807,"out":[0,0,0],"err":[0,0,0]}}`)
		}, "count of the agent"},
		"countless output": {
			run, func(l *liar, id uint32) { l.say('a', id, `{"exit":{"out":[9223372036854775807,0,0],"err":[0,0,0]}}`) },
			"count of the agent",
		},
		"a sandbox given up": {
			run, func(l *liar, id uint32) { l.say('a', id, `{"error":{"code":"broken","message":"why"}}`) }, "why",
		},
		"negative counts": {
			run, func(l *liar, id uint32) { l.say('a', id, `{"exit":{"out":[0,-5,5],"err":[0,0,0]}}`) }, "count of the agent",
		},
		"two results": {
			run, func(l *liar, id uint32) { l.say('s', id, "{}"); l.say('s', id, "{}") }, "not requested",
		},
		"a result of a file": {read, func(l *liar, id uint32) { l.say('s', id, "{}") }, "not requested"},
		"a result that is too large": {
			run, func(l *liar, id uint32) { l.say('s', id, strings.Repeat("x", 600<<10)) }, "not requested",
		},
		"data of a run": {run, func(l *liar, id uint32) { l.say('d', id, "x") }, "more data"},
		"too much data": {
			read, func(l *liar, id uint32) { l.say('d', id, strings.Repeat("x", 101)) }, "more data",
		},
		"empty data":         {read, func(l *liar, id uint32) { l.say('d', id, "") }, "more data"},
		"credit for nothing": {run, func(l *liar, id uint32) { l.say('c', id, "\x00\x00\x00\x01") }, "credit"},
		"half a credit":      {run, func(l *liar, id uint32) { l.say('c', id, "\x00") }, "credit"},
		"a list that is none": {
			list, func(l *liar, id uint32) { l.say('d', id, "{}"); l.say('a', id, "{}") }, "invalid list",
		},
		"no list": {list, func(l *liar, id uint32) { l.say('a', id, "{}") }, "invalid list"},
		"a stat without a file": {
			func(c *agent.Conn) error { return second(c.Stat(context.Background(), "x")) },
			func(l *liar, id uint32) { l.say('a', id, "{}") }, "no file",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, l := lie(t)
			go func() {
				_, id := l.hear()
				tc.say(l, id)
				_, _ = io.Copy(io.Discard, l)
			}()
			err := tc.ask(c)
			if !errors.Is(err, agent.ErrBroken) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %s", err, tc.want)
			}
			<-c.Done()
			if !errors.Is(c.Err(), agent.ErrBroken) {
				t.Errorf("Err is %v", c.Err())
			}
			if err := c.Mkdir(context.Background(), "x"); !errors.Is(err, agent.ErrBroken) {
				t.Errorf("after it: %v", err)
			}
		})
	}
}

// Texts of the agent are made valid and cut; they are no reason to give up.
func TestWhatTheAgentSaysIsOnlyText(t *testing.T) {
	c, l := lie(t)
	go func() {
		_, id := l.hear()
		l.say('k', id, "\x00a\xff")
		l.say('s', id,
			`{"result":`+strings.Repeat("[", 200)+strings.Repeat("]", 200)+
				`,"files":[{"path":"../x"},{"path":"/etc/passwd"},{"path":"out/ok","type":"weird","size":-5,"mode":4294967295},{"path":""}]}`)
		l.say('a', id, `{"exit":{"code":0,"signal":99,"strays":-1,"duration_us":-1,"out":[2,2,0],"err":[0,0,0]}}`)
		_, id = l.hear()
		l.say('a', id, `{"error":{"code":"made up","message":"`+strings.Repeat("ü", 5000)+`"}}`)
		_, id = l.hear()
		l.say('s', id, "garbage")
		l.say('a', id, `{"exit":{"code":3,"out":[0,0,0],"err":[0,0,0]}}`)
	}()
	x, err := c.Run(t.Context(), agent.Run{Kind: agent.Python})
	if err != nil || x.Stdout.Text != "a\uFFFD" || x.Result != nil || len(x.Repr) != 400 || x.Strays != 0 ||
		x.Duration != 0 || x.Signal != "signal 99" {
		t.Errorf("got %+v, %v", x, err)
	}
	if len(x.Files) != 1 || x.Files[0].Path != "out/ok" || x.Files[0].Type != "other" || x.Files[0].Size != 0 ||
		x.Files[0].Mode != 0o7777 {
		t.Errorf("files: %+v", x.Files)
	}
	var e *agent.Error
	if err := c.Mkdir(t.Context(), "x"); !errors.As(err, &e) || e.Code != "failed" || len(e.Message) != 1000 {
		t.Errorf("got %v", err)
	}
	if x, err := c.Run(t.Context(), agent.Run{Kind: agent.Python}); err != nil || x.Code != 3 {
		t.Errorf("got %+v, %v", x, err)
	}
}

// An agent that does not stop a run when it is asked to is given up.
func TestAnAgentThatDoesNotStopIsGivenUp(t *testing.T) {
	c, l := lie(t)
	heard := make(chan byte, 10)
	go func() {
		for {
			k, _ := l.hear()
			if heard <- k; k == 0 {
				return
			}
		}
	}()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-heard
		cancel()
	}()
	_, err := c.Run(ctx, agent.Run{Kind: agent.Python, Grace: time.Millisecond})
	if !errors.Is(err, agent.ErrBroken) || <-heard != 'x' {
		t.Errorf("got %v", err)
	}
}

// An agent that does not even read does not block callers.
func TestAnAgentThatDoesNotReadIsGivenUp(t *testing.T) {
	c, l := lie(t)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, _ = l.Read(make([]byte, 1)) // of the request; then it reads nothing more
		cancel()
	}()
	if _, err := c.Run(ctx,
		agent.Run{Kind: agent.Shell, Stdin: make([]byte, 4<<20), Grace: time.Millisecond}); !errors.Is(err, agent.ErrBroken) {
		t.Errorf("got %v", err)
	}
}

func TestOpenGivesUp(t *testing.T) {
	for name, say := range map[string]func(l *liar){
		"on nobody":         func(l *liar) {},
		"on an end":         func(l *liar) { _ = l.Close() },
		"on garbage":        func(l *liar) { _, _ = l.Write(bytes.Repeat([]byte("x"), 100)) },
		"on another":        func(l *liar) { l.say('r', 0, `{"version":2}`) },
		"on no JSON":        func(l *liar) { l.say('r', 0, `version`) },
		"on an early frame": func(l *liar) { l.say('a', 0, `{}`) },
		"on a flood":        func(l *liar) { l.say('v', 0, ""); l.say('v', 0, ""); l.say('v', 0, "") },
	} {
		t.Run(name, func(t *testing.T) {
			ours, theirs := net.Pipe()
			l := &liar{Conn: theirs}
			defer func() { _ = l.Close() }()
			go func() {
				go func() { _, _ = io.Copy(io.Discard, l) }()
				say(l)
			}()
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			if _, err := agent.Open(ctx, ours); !errors.Is(err, agent.ErrBroken) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestARequestThatIsWrongIsRefusedHere(t *testing.T) {
	c, _ := lie(t)
	for name, r := range map[string]agent.Run{
		"no kind":    {},
		"no argv":    {Kind: agent.Argv},
		"env name":   {Kind: agent.Shell, Env: map[string]string{"A=B": ""}},
		"env value":  {Kind: agent.Shell, Env: map[string]string{"A": "\x00"}},
		"huge code":  {Kind: agent.Python, Code: strings.Repeat("x", 2<<20)},
		"empty name": {Kind: agent.Shell, Env: map[string]string{"": "x"}},
	} {
		if _, err := c.Run(t.Context(), r); codeOf(err) != "invalid" && codeOf(err) != "too_large" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := c.Write(t.Context(), "x", nil, "no mode"); codeOf(err) != "invalid" {
		t.Errorf("write: %v", err)
	}
	if _, _, err := c.Read(t.Context(), "x", -1, 1); codeOf(err) != "invalid" {
		t.Errorf("read: %v", err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Run(over, agent.Run{Kind: agent.Python}); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that is over: %v", err)
	}
}

// When the pipe is closed nothing of a Conn is left.
func TestAConnLeavesNoGoroutines(t *testing.T) {
	before := runtime.NumGoroutine()
	for range 20 {
		b := launch(t, options{})
		c, err := agent.OpenIn(t.Context(), b.pipe, agent.Config{Workspace: b.workspace})
		if err != nil {
			t.Fatal(err)
		}
		running := make(chan error, 1)
		p := newPrinted()
		go func() {
			_, err := c.Run(context.Background(),
				agent.Run{Kind: agent.Shell, Code: "echo on; sleep 100", Timeout: time.Minute, Output: p.add})
			running <- err
		}()
		<-p.more
		b.end(t)
		if err := <-running; !errors.Is(err, agent.ErrBroken) {
			t.Errorf("the run: %v", err)
		}
		<-c.Done()
	}
	eventually(t, "goroutines are left", func() bool { return runtime.NumGoroutine() <= before })
}

// FuzzAgent: whatever an agent sends, a Conn neither panics nor hangs, and returns text
// within its bounds.
func FuzzAgent(f *testing.F) {
	good := bytes.Join([][]byte{
		frameOf('o', 1, "\x00hi"), frameOf('k', 1, "\x00hi"),
		frameOf('s', 1, `{"result":[1],"files":[{"path":"out/x","type":"file"}]}`),
		frameOf('a', 1, `{"exit":{"code":1,"signal":9,"out":[5,1,1],"err":[0,0,0]}}`),
		frameOf('d', 2, `[{"path":"a"}]`), frameOf('a', 2, `{}`),
	}, nil)
	f.Add(good)
	f.Add(good[:len(good)/2])
	f.Add(frameOf('a', 1, `{"error":{"code":"x","message":"y"}}`))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, said []byte) {
		ours, theirs := net.Pipe()
		l := &liar{Conn: theirs}
		defer func() { _ = l.Close() }()
		go func() {
			go func() { _, _ = io.Copy(io.Discard, l) }()
			l.say('r', 0, `{"version":1}`)
		}()
		c, err := agent.Open(t.Context(), ours)
		if err != nil {
			t.Fatal(err)
		}
		asked := make(chan struct{})
		go func() {
			<-asked
			_, _ = l.Write(said)
			_ = l.Close()
		}()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		go close(asked)
		x, err := c.Run(ctx, agent.Run{Kind: agent.Python, MaxOutput: 64, Output: func(_ agent.Stream, piece []byte) {
			if len(piece) > 64+4 {
				t.Errorf("a piece of %d bytes", len(piece))
			}
		}})
		if err == nil && (len(x.Stdout.Text) > 64*3+100 || len(x.Repr) > 1<<20 || len(x.Files) > 64) {
			t.Errorf("beyond its bounds: %+v", x)
		}
		files, err := c.List(ctx, "")
		if err == nil {
			for _, f := range files {
				if f.Path == "" || strings.HasPrefix(f.Path, "/") || strings.Contains("/"+f.Path+"/", "/../") {
					t.Errorf("a path outside: %q", f.Path)
				}
			}
		}
	})
}

// A sandbox whose agent was tampered with is given up by the next call. It never answers
// with the agent's own failure as if the code had failed.
func TestAnAgentThatWasTamperedWithIsGivenUp(t *testing.T) {
	for _, limit := range []string{
		"AS, 1 << 20", "DATA, 1 << 20", "NOFILE, 30", "NOFILE, 4", "NPROC, 0", "FSIZE, 0", "STACK, 4096",
	} {
		t.Run(limit, func(t *testing.T) {
			b := start(t)
			b.works(t)
			name, value, _ := strings.Cut(limit, ", ")
			run := agent.Run{
				Kind: agent.Python,
				Code: "import os, resource\nresource.prlimit(os.getppid(), resource.RLIMIT_" + name + ", (" + value + ",) * 2)",
			}
			if x, err := b.Run(t.Context(), run); err != nil && !errors.Is(err, agent.ErrBroken) || x.Stderr.Text != "" {
				t.Fatalf("got %+v, %v", x, err)
			}
			x, err := b.Run(t.Context(), agent.Run{Kind: agent.Python, Code: "1"})
			if !errors.Is(err, agent.ErrBroken) {
				t.Errorf("the next call: %+v, %v", x, err)
			}
		})
	}
}

// The spare child has ended when other code runs than its own.
func TestCodeRunsBesideNoSpareChild(t *testing.T) {
	b := start(t)
	code := "\nimport os, signal\nfor pid in open('/proc/%d/task/%d/children' % ((os.getppid(),) * 2)).read().split():\n" +
		" if int(pid) != os.getpid(): os.kill(int(pid), signal.SIGSTOP)"
	for range 3 {
		b.works(t)
		b.awaitSpare(t)
		if x := b.must(t, agent.Run{Kind: agent.Python, Code: "#" + strings.Repeat("x", 60<<10) + code}); x.Code != 0 {
			t.Fatalf("got %+v", x)
		}
		b.works(t)
	}
}

func (b *sandbox) awaitSpare(t *testing.T) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	pid := strconv.Itoa(b.process.Process.Pid)
	for end := time.Now().Add(patience); ; <-tick.C {
		if text, err := os.ReadFile("/proc/" + pid + "/task/" + pid + "/children"); err != nil || len(text) > 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatal("no spare child is forked")
		}
	}
}

// Code cannot answer for the agent.
func TestCodeForgesNoAnswer(t *testing.T) {
	b := start(t)
	x := b.python(t, `
import os, json
text = json.dumps({"exit": {"code": 7, "strays": 1 << 62, "out": [1 << 62, 0, 0], "err": [0, 0, 0]}}).encode()
os.write(60, b"a" + len(text).to_bytes(4, "big") + text)`, "42")
	if x.Code != 0 || x.Strays != 0 || string(x.Result) != "42" {
		t.Errorf("got %+v", x)
	}
	b.works(t)
}
