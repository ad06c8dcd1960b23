package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/charmbracelet/x/vt"
	"github.com/creack/pty"
	"golang.org/x/term"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/client"
	"skandha.dev/services/internal/rights"
	"skandha.dev/services/provider"
	"skandha.dev/services/skandha/system"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/test/scripted"
)

// asCommand makes the test binary the command itself: what is driven in a terminal
// is what people run, with the race detector where the tests have it.
const asCommand = "SKANDHA_TEST_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// world is a system with a scripted model, and tools of a plugin in this process.
type world struct {
	t    *testing.T
	data string
	conf string // a configuration file
	sys  *system.System
	c    *client.Client
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldAt(t, "")
}

// newWorldAt has its bus at an address, which is there after a restart, too.
func newWorldAt(t *testing.T, addr string) *world {
	t.Helper()
	w := &world{t: t, data: t.TempDir()}
	w.start(addr)
	return w
}

func (w *world) config(addr string) system.Config {
	return system.Config{
		Data: w.data, Models: []provider.Adapter{scripted.New()}, Sync: "relaxed",
		NATS: addr, Log: natstest.Logger(w.t), ConfigFile: w.conf,
	}
}

func (w *world) start(addr string) {
	w.t.Helper()
	sys, err := system.Start(w.t.Context(), w.config(addr))
	if err != nil {
		w.t.Fatal(err)
	}
	stop := sync.OnceFunc(sys.Stop)
	w.t.Cleanup(stop)
	w.sys = sys
	b, err := sys.Connect(w.t.Context(), "test")
	if err != nil {
		w.t.Fatal(err)
	}
	if w.c, err = client.New(b, "ui-web", natstest.Logger(w.t)); err != nil {
		w.t.Fatal(err)
	}
}

// plug registers tools: one that a person is asked about, and one that answers what
// the test wants.
func (w *world) plug(answer func() (any, error)) {
	w.t.Helper()
	if _, err := w.sys.Invite(w.t.Context(), rights.Local("kit")); err != nil {
		w.t.Fatal(err)
	}
	b, err := w.sys.Connect(w.t.Context(), "kit")
	if err != nil {
		w.t.Fatal(err)
	}
	type args struct {
		Text string `json:"text,omitempty"`
	}
	risky := func(s *tool.Spec) { s.Risk = tool.RiskHigh }
	ctx, stop := context.WithCancel(context.Background())
	done, active := make(chan error, 1), make(chan struct{})
	once := sync.OnceFunc(func() { close(active) })
	go func() {
		done <- plugin.Serve(ctx, plugin.Manifest{Name: "kit", Version: "1.0.0"}, plugin.Handlers{
			plugin.Tool("kit:risky", "Does what cannot be undone.",
				func(_ context.Context, a args) (string, error) { return "did " + a.Text, nil }, risky),
			plugin.Tool("kit:answer", "Answers.", func(context.Context, args) (any, error) { return answer() }),
		}, plugin.WithBus(b.Bus), plugin.OnState(func(s plugin.LeaseState, _ string) {
			if s == plugin.Active {
				once()
			}
		}))
	}()
	w.t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			w.t.Errorf("the plugin: %v", err)
		}
	})
	select {
	case <-active:
	case err := <-done:
		done <- err
		w.t.Fatalf("the plugin ended: %v", err)
	case <-time.After(natstest.Patience):
		w.t.Fatal("the plugin is not active")
	}
	var tools []struct {
		Name string `json:"name"`
		Live bool   `json:"live"`
	}
	natstest.Eventually(w.t, "core knows the tools", func() bool {
		if err := w.c.Ask(w.t.Context(), "tools", nil, &tools); err != nil {
			return false
		}
		n := 0
		for _, t := range tools {
			if strings.HasPrefix(t.Name, "kit:") && t.Live {
				n++
			}
		}
		return n == 2
	})
}

func (w *world) ref(session string) subject.Ref {
	return subject.Ref{Agent: "main", Session: subject.Session(session)}
}

// say speaks in a session from another UI.
func (w *world) say(session, text string) {
	w.t.Helper()
	if _, err := w.c.Say(w.t.Context(), w.ref(session), event.Input{Text: text, Source: "web"}); err != nil {
		w.t.Fatal(err)
	}
}

// screen is a terminal in which a command runs.
type screen struct {
	t    *testing.T
	pty  *os.File
	cmd  *exec.Cmd
	done chan error

	mu  sync.Mutex
	emu *vt.Emulator
	raw bytes.Buffer // everything that was written
	off bool         // the cursor is hidden
}

// chat starts a conversation in a terminal of 80 columns and 24 rows.
func (w *world) chat(args ...string) *screen {
	w.t.Helper()
	return w.chatWith([]string{"TERM=xterm-256color"}, args...)
}

func (w *world) chatWith(env []string, args ...string) *screen {
	w.t.Helper()
	return w.terminal(env, append([]string{"chat"}, args...)...)
}

// terminal runs a command of the system's in a terminal.
func (w *world) terminal(env []string, args ...string) *screen {
	w.t.Helper()
	return w.sizedTerminal(&pty.Winsize{Rows: 24, Cols: 80}, env, args...)
}

func (w *world) sizedTerminal(size *pty.Winsize, env []string, args ...string) *screen {
	w.t.Helper()
	s := &screen{t: w.t, emu: vt.NewEmulator(80, 24), done: make(chan error, 1)}
	s.emu.SetCallbacks(vt.Callbacks{CursorVisibility: func(visible bool) { s.off = !visible }})
	s.cmd = exec.Command(os.Args[0], append(args, "--data", w.data)...)
	s.cmd.Env = append([]string{"HOME=" + w.t.TempDir(), "PATH=" + os.Getenv("PATH"), asCommand + "=1"}, env...)
	var err error
	if s.pty, err = pty.StartWithSize(s.cmd, size); err != nil {
		w.t.Fatal(err)
	}
	var reading sync.WaitGroup
	reading.Go(s.read)
	reading.Go(s.reply)
	go func() { s.done <- s.cmd.Wait() }()
	w.t.Cleanup(func() {
		select {
		case err := <-s.done:
			s.t.Logf("it has ended: %v", err)
		default:
			_ = s.cmd.Process.Kill() // it may have ended by itself
			err := <-s.done
			s.t.Logf("it was ended: %v", err)
		}
		_ = s.pty.Close()
		_ = s.emu.InputPipe().(io.Closer).Close() // the emulator's own Close races with Read
		reading.Wait()
	})
	return s
}

func (s *screen) read() {
	buf := make([]byte, 32<<10)
	for {
		n, err := s.pty.Read(buf)
		s.mu.Lock()
		s.raw.Write(buf[:n])
		_, _ = s.emu.Write(buf[:n])
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// reply is what the terminal itself says when it is asked.
func (s *screen) reply() {
	buf := make([]byte, 4<<10)
	for {
		n, err := s.emu.Read(buf)
		if n > 0 {
			_, _ = s.pty.Write(buf[:n])
		}
		if err != nil {
			return
		}
	}
}

// rows is the screen as it is seen.
func (s *screen) rows() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	rows := strings.Split(s.emu.String(), "\n")
	for i := range rows {
		rows[i] = strings.TrimRight(rows[i], " \r")
	}
	return rows
}

func (s *screen) String() string { return strings.Join(s.rows(), "\n") }

// all is the screen with what has scrolled out of it.
func (s *screen) all() string {
	s.mu.Lock()
	var b strings.Builder
	for _, l := range s.emu.Scrollback().Lines() {
		b.WriteString(strings.TrimRight(l.String(), " ") + "\n")
	}
	s.mu.Unlock()
	return b.String() + s.String()
}

// await waits until the screen shows every one of the texts.
func (s *screen) await(texts ...string) {
	s.t.Helper()
	s.until(fmt.Sprintf("%q", texts), func(screen string) bool { return holds(screen, texts) })
}

// reads waits until every one of the texts was printed, though it may have scrolled
// out of the screen.
func (s *screen) reads(texts ...string) {
	s.t.Helper()
	s.until(fmt.Sprintf("%q", texts), func(string) bool { return holds(s.all(), texts) })
}

func holds(all string, texts []string) bool {
	return !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(all, text) })
}

// gone waits until the screen does not show a text any more.
func (s *screen) gone(text string) {
	s.t.Helper()
	s.until("no "+text, func(screen string) bool { return !strings.Contains(screen, text) })
}

func (s *screen) until(what string, ok func(screen string) bool) {
	s.t.Helper()
	deadline := time.Now().Add(natstest.Patience)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok(s.String()) {
		if time.Now().After(deadline) {
			s.t.Fatalf("the screen does not show %s:\n%s", what, s.all())
		}
		<-tick.C
	}
}

// keys are pressed as they are; use the names below.
func (s *screen) keys(keys ...string) {
	s.t.Helper()
	for _, k := range keys {
		if _, err := s.pty.WriteString(k); err != nil {
			s.t.Fatal(err)
		}
	}
}

const (
	enter  = "\r"
	tab    = "\t"
	escape = "\x1b"
	up     = "\x1b[A"
	ctrlC  = "\x03"
	ctrlD  = "\x04"
	ctrlJ  = "\x0a"
	ctrlL  = "\x0c"
)

func paste(text string) string { return "\x1b[200~" + text + "\x1b[201~" }

func (s *screen) resize(cols, rows int) {
	s.t.Helper()
	s.mu.Lock()
	s.emu.Resize(cols, rows)
	s.mu.Unlock()
	if err := pty.Setsize(s.pty, &pty.Winsize{Rows: uint16(rows), Cols: uint16(cols)}); err != nil { //nolint:gosec // small
		s.t.Fatal(err)
	}
}

// cursor reports whether there is one.
func (s *screen) cursor() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.off
}

// mode is how the terminal treats what is typed and written.
func mode(t *testing.T, f *os.File) string {
	t.Helper()
	raw, err := f.SyscallConn() // Fd would make reading uninterruptible
	if err != nil {
		t.Fatal(err)
	}
	var state *term.State
	if bad := raw.Control(func(fd uintptr) { state, err = term.GetState(int(fd)) }); bad != nil || err != nil {
		t.Fatal(bad, err)
	}
	return fmt.Sprintf("%+v", *state)
}

// newMode is the mode of a terminal that nobody has used.
func newMode(t *testing.T) string {
	t.Helper()
	p, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = p.Close(), tty.Close() }()
	return mode(t, p)
}

func (s *screen) signal(sig os.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
}

// leaves waits for the end and returns the exit code.
func (s *screen) leaves() int {
	s.t.Helper()
	select {
	case err := <-s.done:
		s.done <- err
		var code *exec.ExitError
		if errors.As(err, &code) {
			return code.ExitCode()
		}
		if err != nil {
			s.t.Fatal(err)
		}
		return 0
	case <-time.After(natstest.Patience):
		s.t.Fatalf("it does not leave:\n%s", s.all())
	}
	return -1
}
