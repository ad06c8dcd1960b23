package mcp

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"skandha.dev/services/internal/logburst"
	"skandha.dev/services/internal/secret"
	"skandha.dev/services/internal/text"
)

const (
	endWithin   = time.Second // a command has that long after its input ended, and again after SIGTERM
	hearWithin  = 200 * time.Millisecond
	maxLine     = 1 << 10 // of what a command writes to its standard error, in bytes
	maxLast     = 400     // of the last words of a command, in bytes
	defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

// dialStdio starts the command. stop ends it with all that it has started, and returns its last words.
func (l *link) dialStdio(in *session) (t sdk.Transport, stop func() string, err error) {
	s, err := l.server.secrets()
	if err != nil {
		return nil, nil, err
	}
	l.knows(s.known)
	argv, env, dir, err := l.commandLine(s.env)
	if err != nil {
		return nil, nil, err
	}
	var inherits []*os.File
	if l.server.Isolation != Host {
		rules, err := filter()
		if err != nil {
			return nil, nil, err
		}
		defer func() { _ = rules.Close() }()
		inherits = append(inherits, rules)
	}
	p, err := start(&exec.Cmd{Args: argv, Env: env, Dir: dir, ExtraFiles: inherits}, l.log, s.known)
	if err != nil {
		return nil, nil, fmt.Errorf("starting %s: %w", argv[0], err)
	}
	return &lines{session: in, out: p.out, in: p.in}, p.stop, nil
}

// commandLine returns what is run: the command itself, or a sandbox around it.
func (l *link) commandLine(values map[string]string) (argv, env []string, dir string, err error) {
	if l.server.Isolation == Host {
		env = inherited()
		for name, value := range values {
			env = append(env, name+"="+value)
		}
		return l.server.Command, env, l.server.Dir, nil
	}
	home := ""
	if l.group.opt.StateDir != "" {
		home = Home(l.group.opt.StateDir, l.name)
		if err := os.MkdirAll(home, 0o700); err != nil {
			return nil, nil, "", err
		}
		if home, err = filepath.Abs(home); err != nil {
			return nil, nil, "", err
		}
	}
	if refuses := l.group.opt.Refuses; refuses != nil {
		for i, dir := range l.server.Read {
			if err := refuses(dir); err != nil {
				return nil, nil, "", fmt.Errorf("read[%d]: %w", i, err)
			}
		}
	}
	argv, env, err = confined(l.server, home)
	for name, value := range values {
		env = append(env, name+"="+value)
	}
	return argv, env, "/", err
}

// Home returns the directory, below a state directory, that a command in the sandbox has as its home. It stays when the
// server is removed.
func Home(stateDir, name string) string { return filepath.Join(stateDir, "mcp", name) }

// inherited is what a command on the host gets of this process's environment: nothing that could be a
// secret.
func inherited() (env []string) {
	for _, name := range []string{"HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TMPDIR", "TZ", "USER"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// process is a command that runs.
type process struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   io.ReadCloser
	ended chan struct{}
	heard chan struct{} // closed when its standard error has ended
	once  sync.Once

	mu   sync.Mutex
	last string // of its standard error
}

// start runs a command in a process group.
func start(cmd *exec.Cmd, log *slog.Logger, known secret.Known) (*process, error) {
	var err error
	if cmd.Path, err = lookPath(cmd.Args[0], cmd.Env); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, ended: make(chan struct{}), heard: make(chan struct{})}
	grouped(p.cmd)
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	// Not StdoutPipe: what was written last must be read, also after the end.
	out, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	complain, e, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, out.Close(), w.Close())
	}
	p.out, p.cmd.Stdout, p.cmd.Stderr = out, w, e
	started := make(chan error, 1)
	go p.live(started)
	err = <-started
	_, _ = w.Close(), e.Close()
	if err != nil {
		return nil, errors.Join(err, out.Close(), complain.Close())
	}
	go p.listen(complain, log, known)
	return p, nil
}

// listen logs what the command writes to its standard error, a little at a time.
func (p *process) listen(from io.ReadCloser, log *slog.Logger, known secret.Known) {
	defer func() { _ = from.Close(); close(p.heard) }()
	lines := logburst.New(log)
	r := bufio.NewReaderSize(from, 4*maxLine)
	for {
		line, rest, err := r.ReadLine()
		words := strings.TrimSpace(plain(text.Cut(known.Hide(string(line)), maxLine)))
		for rest && err == nil {
			_, rest, err = r.ReadLine()
		}
		if words != "" {
			lines.Log(slog.LevelInfo, "stderr", "an MCP server says", "text", words)
			p.mu.Lock()
			p.last = words
			p.mu.Unlock()
		}
		if err != nil {
			return
		}
	}
}

// stop ends the process group, and returns the last words of the command.
func (p *process) stop() string {
	p.once.Do(func() {
		_ = p.in.Close()
		for _, end := range []func(){p.terminate, p.kill} {
			select {
			case <-p.ended:
			case <-time.After(endWithin):
				end()
			}
		}
		<-p.ended
		p.kill() // what the command has left of its group
		_ = p.out.Close()
		select { // a process that has left the group may hold it open
		case <-p.heard:
		case <-time.After(hearWithin):
		}
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	return text.Cut(p.last, maxLast)
}

// lookPath finds a program with the PATH of its environment.
func lookPath(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	list := defaultPath
	for _, v := range env {
		if p, ok := strings.CutPrefix(v, "PATH="); ok {
			list = p
		}
	}
	for _, dir := range filepath.SplitList(list) {
		if !filepath.IsAbs(dir) {
			continue
		}
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s is not installed, or not in %s", name, list)
}
