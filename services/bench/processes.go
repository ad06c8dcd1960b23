package bench

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/natsserver"
	"skandha.dev/services/internal/signals"
)

// process is one of this program in a role. It says READY on standard output.
type process struct {
	cmd   *exec.Cmd
	ready string // what followed READY
}

func spawn(ctx context.Context, argv []string, env ...string) (*process, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...) //nolint:gosec // our own program
	cmd.Env = append(os.Environ(), env...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if rest, ok := strings.CutPrefix(lines.Text(), "READY"); ok {
			go func() {
				for lines.Scan() { // keep the pipe empty
				}
			}()
			return &process{cmd, strings.TrimSpace(rest)}, nil
		}
	}
	_ = cmd.Wait() // its error is that it never got ready
	return nil, fmt.Errorf("%s did not get ready: %s", strings.Join(argv, " "), strings.TrimSpace(stderr.String()))
}

func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may be gone
	_ = p.cmd.Wait()
}

// rss is the resident memory of the process, in MiB.
func (p *process) rss() (float64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for _, l := range strings.Split(string(b), "\n") {
		if rest, ok := strings.CutPrefix(l, "VmRSS:"); ok {
			kb, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(rest, "kB")), 64)
			return kb / 1024, err
		}
	}
	return 0, errors.New("the kernel tells no VmRSS")
}

// turnProcesses is B5: server, core, provider and runner in separate processes.
func turnProcesses(ctx context.Context, o Options) ([]Row, error) {
	if o.Spawn == nil {
		return nil, nil
	}
	var rows []Row
	for _, m := range []struct {
		sync natsserver.Sync
		most float64
	}{{natsserver.Always, 1.7}, {natsserver.Relaxed, 2.5}} {
		row, err := overProcesses(ctx, o, m.sync, m.most)
		if err != nil {
			return rows, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}

func overProcesses(ctx context.Context, o Options, mode natsserver.Sync, most float64) (Row, error) {
	b, stop, err := apart(ctx, o, mode)
	if err != nil {
		return Row{}, err
	}
	defer stop()
	t, err := newTalker(b, "one")
	if err != nil {
		return Row{}, err
	}
	raw, err := newBare(ctx, b, "one")
	if err != nil {
		return Row{}, err
	}
	x, y, err := interleave(ctx, o.n(1000), t.turn, raw.turn)
	return ratio("B5", "turn over four processes, sync "+string(mode), x, y, most), err
}

// apart starts server, core, provider and runner as processes, with further variables, and connects.
func apart(ctx context.Context, o Options, mode natsserver.Sync, more ...string) (_ *journal.Journal, stop func(), err error) {
	dir, err := os.MkdirTemp(o.Dir, "bench-")
	if err != nil {
		return nil, nil, err
	}
	var running []*process
	stop = func() {
		for i := len(running) - 1; i >= 0; i-- {
			running[i].stop()
		}
		_ = os.RemoveAll(dir) // scratch
	}
	env, url := append([]string{"SKANDHA_BENCH_DIR=" + dir, "SKANDHA_BENCH_SYNC=" + string(mode)}, more...), ""
	for _, role := range []string{"server", "core", "provider", "runner"} {
		p, err := spawn(ctx, o.Spawn(role), append(env, "SKANDHA_BENCH_URL="+url)...)
		if err != nil {
			stop()
			return nil, nil, err
		}
		running = append(running, p)
		if role == "server" {
			url = p.ready
		}
	}
	b, err := journal.Connect(ctx, bus.Config{URL: url, Name: "talker", Logger: quiet})
	if err != nil {
		stop()
		return nil, nil, err
	}
	end := stop
	return b, func() { b.Close(); end() }, nil
}

// Role is the main of a process that overProcesses has spawned.
func Role(ctx context.Context, role string) error {
	dir, url := os.Getenv("SKANDHA_BENCH_DIR"), os.Getenv("SKANDHA_BENCH_URL")
	if role == "server" {
		srv, err := natsserver.Start(natsserver.Config{
			StoreDir: filepath.Join(dir, "nats"), Sync: natsserver.Sync(os.Getenv("SKANDHA_BENCH_SYNC")), Addr: "127.0.0.1:-1",
			Logger: quiet,
		})
		if err != nil {
			return err
		}
		defer srv.Shutdown()
		fmt.Println("READY", srv.ClientURL())
		<-ctx.Done()
		return nil
	}
	b, err := journal.Connect(ctx, bus.Config{URL: url, Name: role, Logger: quiet})
	if err != nil {
		return err
	}
	defer b.Close()
	sent, err := signals.Start(ctx, signals.Config{Service: "bench-" + role, Instance: role, Log: quiet})
	if err != nil {
		return err
	}
	defer func() { _ = sent.Stop() }() // what is left is of no interest
	if role == "core" {
		r := &rig{dir: dir, traces: sent.On()}
		defer r.stop()
		if err := r.runCore(ctx, b); err != nil {
			return err
		}
		fmt.Println("READY")
		<-ctx.Done()
		return nil
	}
	switch role {
	case "plugin":
		return servePlugin(ctx, b, os.Getenv("SKANDHA_BENCH_PLUGIN"))
	case "browser":
		return browse(ctx, b, os.Getenv("SKANDHA_BENCH_WS"), func() { fmt.Println("READY") })
	case "bridge":
		ws, stop, err := bridge(ctx, b)
		if err != nil {
			return err
		}
		defer stop()
		fmt.Println("READY", ws)
		<-ctx.Done()
		return nil
	}
	if err := ServeBare(b.Conn(), role); err != nil {
		return err
	}
	fmt.Println("READY")
	return Executor(ctx, b, role)
}

// idle is B12.
func idle(ctx context.Context, o Options) ([]Row, error) {
	if o.Binary == "" {
		return nil, nil
	}
	var rows []Row
	var rss, ready []float64
	for range 5 {
		m, d, err := idleOnce(ctx, o)
		if err != nil {
			return nil, err
		}
		rss, ready = append(rss, m), append(ready, d)
	}
	rows = append(rows,
		absolute("B12", "skandha up, idle: resident memory", mid(rss), 80, "MiB"),
		absolute("B12", "skandha up: ready after", mid(ready), 300, "ms"))
	fi, err := os.Stat(o.Binary)
	if err != nil {
		return rows, err
	}
	rows = append(rows, absolute("B12", "binary", float64(fi.Size())/1e6, 100, "MB"))
	alone, err := idleServices(ctx, o)
	return append(rows, alone...), err
}

func mid(v []float64) float64 {
	s := append([]float64(nil), v...)
	for i := range s {
		for j := i; j > 0 && s[j] < s[j-1]; j-- {
			s[j], s[j-1] = s[j-1], s[j]
		}
	}
	return s[len(s)/2]
}

// settle is how long an idle process is left alone before it is weighed.
const settle = 2 * time.Second

func idleOnce(ctx context.Context, o Options) (rss, ready float64, err error) {
	dir, err := os.MkdirTemp(o.Dir, "bench-")
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // scratch
	begin := time.Now()
	p, err := spawn(ctx, []string{o.Binary, "up", "--data", dir, "--provider", "offline", "--ready-line"})
	if err != nil {
		return 0, 0, err
	}
	defer p.stop()
	ready = ms(time.Since(begin))
	time.Sleep(settle)
	rss, err = p.rss()
	return rss, ready, err
}

// idleServices weighs each service alone, if its binary lies beside the command.
func idleServices(ctx context.Context, o Options) ([]Row, error) {
	dir, err := os.MkdirTemp(o.Dir, "bench-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // scratch
	srv, err := natsserver.Start(natsserver.Config{
		StoreDir: filepath.Join(dir, "nats"), Addr: "127.0.0.1:-1", Logger: quiet,
	})
	if err != nil {
		return nil, err
	}
	defer srv.Shutdown()
	var rows []Row
	for i, s := range []struct {
		name string
		args []string
	}{
		{"skandha-core", []string{"--store", filepath.Join(dir, "view.db")}},
		{"skandha-provider", []string{"--provider", "offline"}},
		{"skandha-toolrunner", []string{"--workspace", dir}},
	} {
		bin := filepath.Join(filepath.Dir(o.Binary), s.name)
		if _, err := os.Stat(bin); err != nil {
			continue
		}
		addr := fmt.Sprintf("127.0.0.1:%d", 18080+i)
		argv := append([]string{bin, "--nats", srv.ClientURL(), "--http", addr}, s.args...)
		rss, err := weigh(ctx, argv, addr)
		if err != nil {
			return rows, err
		}
		rows = append(rows, absolute("B12", s.name+", idle: resident memory", rss, 30, "MiB"))
	}
	return rows, nil
}

// weigh starts a service, waits until it is ready and reads its memory.
func weigh(ctx context.Context, argv []string, addr string) (float64, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...) //nolint:gosec // our own program
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	p := &process{cmd: cmd}
	defer p.stop()
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/readyz", nil)
		if err != nil {
			return 0, err
		}
		if res, err := http.DefaultClient.Do(req); err == nil {
			_ = res.Body.Close()
			if res.StatusCode == http.StatusOK {
				break
			}
		}
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("%s did not get ready", argv[0])
		case <-time.After(20 * time.Millisecond):
		}
	}
	time.Sleep(settle)
	return p.rss()
}
