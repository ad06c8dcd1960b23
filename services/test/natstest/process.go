package natstest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"skandha.dev/services/internal/natsserver"
)

// The variables that turn a test binary into a server.
const (
	envDir  = "SKANDHA_NATSTEST_DIR"
	envAddr = "SKANDHA_NATSTEST_ADDR"
	envSync = "SKANDHA_NATSTEST_SYNC"
	// In a cluster: the server's own route and all routes, separated by commas.
	envRoutes = "SKANDHA_NATSTEST_ROUTES"
)

// init makes any test binary that imports this package a NATS server when
// [StartProcess] runs it again: nothing has to be built, and no test needs a
// TestMain for it.
func init() {
	if dir := os.Getenv(envDir); dir != "" && testing.Testing() {
		serve(dir)
	}
}

// serve runs the server until the parent ends or kills it.
func serve(dir string) {
	c := natsserver.Config{
		StoreDir: dir, Addr: os.Getenv(envAddr), Sync: natsserver.Sync(os.Getenv(envSync)),
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	}
	if routes := os.Getenv(envRoutes); routes != "" {
		c = member(c, strings.Split(routes, ","))
	}
	s, err := natsserver.Start(c)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(s.ClientURL())
	_, _ = io.Copy(io.Discard, os.Stdin) // ends with the parent
	s.Shutdown()
	os.Exit(0)
}

// Process is a server in a separate process.
type Process struct {
	t    testing.TB
	dir  string
	port int
	sync natsserver.Sync

	routes []string // in a cluster: its own route, then all routes

	cmd   *exec.Cmd
	stdin io.Closer
	url   string
}

// StartProcess runs a server as a separate process, in the directory (empty:
// a temporary one of the test) and on the port (0: any) of the loopback interface,
// until the test ends. It keeps its port over restarts. Its streams are synced
// in relaxed mode, which loses nothing to a kill.
func StartProcess(t testing.TB, dir string, port int) *Process {
	t.Helper()
	if dir == "" {
		dir = filepath.Join(t.TempDir(), "nats")
	}
	if port == 0 {
		port = FreePort(t)
	}
	p := &Process{t: t, dir: dir, port: port, sync: natsserver.Relaxed}
	t.Cleanup(p.Kill)
	p.Restart()
	return p
}

// URL returns the address for clients.
func (p *Process) URL() string { return p.url }

// Kill ends the server by SIGKILL and waits until it has ended.
func (p *Process) Kill() {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
	_ = p.stdin.Close()
	p.cmd = nil
}

// Stop ends the server cleanly and waits until it has ended.
func (p *Process) Stop() {
	if p.cmd == nil {
		return
	}
	_ = p.stdin.Close()
	_ = p.cmd.Wait()
	p.cmd = nil
}

// Restart starts the server again, on the same directory and port, after a kill
// if it still runs, and waits until it takes clients.
func (p *Process) Restart() {
	p.t.Helper()
	p.Kill()
	exe, err := os.Executable()
	if err != nil {
		p.t.Fatalf("finding the test binary: %v", err)
	}
	cmd := exec.Command(exe) //nolint:noctx // lives until Kill
	cmd.Env = append(os.Environ(),
		envDir+"="+p.dir, envAddr+"=127.0.0.1:"+strconv.Itoa(p.port), envSync+"="+string(p.sync))
	cmd.Stderr = os.Stderr
	if len(p.routes) > 0 {
		cmd.Env = append(cmd.Env, envRoutes+"="+strings.Join(p.routes, ","))
		cmd.Stderr = nil // messages about killed servers would fill the log
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		p.t.Fatalf("starting the server process: %v", err)
	}
	p.cmd, p.stdin = cmd, stdin
	line := make(chan string, 1)
	go func() {
		s, _ := bufio.NewReader(stdout).ReadString('\n')
		line <- strings.TrimSpace(s)
	}()
	select {
	case p.url = <-line:
		if p.url == "" {
			p.Kill()
			p.t.Fatal("the server process did not start; see its output above")
		}
	case <-time.After(Patience):
		p.Kill()
		p.t.Fatalf("the server process did not start within %v", Patience)
	}
}

// claims are UDP sockets on the ports that this process has handed out, kept as
// long as it runs: no test process is given another's port, even while the server
// that has it is away.
var (
	claimsMu sync.Mutex
	claims   []net.PacketConn
)

// FreePort finds a port of the loopback interface below those that the system
// gives to connections: while a server is away, one of its clients might be given
// its port, or even connect to itself.
func FreePort(t testing.TB) int {
	t.Helper()
	var lc net.ListenConfig
	for range 1000 {
		port := 20_000 + rand.IntN(12_000)
		addr := "127.0.0.1:" + strconv.Itoa(port)
		claim, err := lc.ListenPacket(context.Background(), "udp", addr)
		if err != nil {
			continue
		}
		l, err := lc.Listen(context.Background(), "tcp", addr)
		if err != nil {
			_ = claim.Close()
			continue
		}
		_ = l.Close()
		claimsMu.Lock()
		defer claimsMu.Unlock()
		claims = append(claims, claim)
		return port
	}
	t.Fatal("no port is free")
	return 0
}
