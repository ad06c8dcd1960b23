package deps

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"skandha.dev/services/sandbox/driver"
)

// Manager creates package sets, keeps them and removes them. Its methods are safe for
// concurrent use.
type Manager struct {
	cfg    Config
	driver driver.Driver
	now    func() time.Time
	slots  chan struct{} // one element for each running installation

	mu       sync.Mutex
	platform string
	flights  map[string]*flight
	failures map[string]failure
	used     map[string]time.Time // when Ensure last returned each set

	collecting sync.Mutex   // held by a Collect
	removing   sync.RWMutex // prevents the removal of a set between being found and being marked as used
}

type failure struct {
	err *Error
	at  time.Time
}

// flight is an installation in progress, with its waiters.
type flight struct {
	cancel  context.CancelCauseFunc
	done    chan struct{} // closed when err is set
	err     error
	earlier *flight // an abandoned flight of the same id, which must end first

	// Under Manager.mu:
	listeners map[*listener]struct{}
	abandoned bool
}

// listener is one waiter. Its progress is forwarded on a separate goroutine, so that a slow
// waiter, or one that has left, does not delay the others.
type listener struct{ lines chan string }

// New returns a manager with a valid configuration. The driver need not work yet.
func New(cfg Config, d driver.Driver) (*Manager, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("dependencies: %w", err)
	}
	return &Manager{
		cfg: cfg.withDefaults(), driver: d, now: time.Now, slots: make(chan struct{}, cfg.withDefaults().Installs),
		flights: map[string]*flight{}, failures: map[string]failure{}, used: map[string]time.Time{},
	}, nil
}

// Ensure installs the packages unless they are installed, and returns the id of their
// set for driver.Spec.Set; without requirements it returns "". Concurrent callers with
// the same requirements wait for the same installation, which ends early only when all
// of them have left. A failure is an [*Error] if the packages or the index are at
// fault.
//
// Progress receives short descriptions ("collecting numpy"), never after
// Ensure has returned; lines that it is too slow for are dropped.
//
// The set is kept for at least Config.Settle. A sandbox that is started later, or by a
// driver whose sets another service also removes, may fail with driver.ErrNoSet; then
// call Ensure again.
func (m *Manager) Ensure(ctx context.Context, reqs Requirements, progress func(string)) (string, error) {
	if len(reqs) == 0 {
		return "", nil
	}
	if len(reqs) > MaxPackages {
		return "", &Error{Code: TooMany, Detail: fmt.Sprintf("%d, want at most %d", len(reqs), MaxPackages)}
	}
	if slices.ContainsFunc(reqs, func(r Requirement) bool { return r.name == "" }) {
		return "", errors.New("a requirement has no name; create requirements with Parse")
	}
	reqs = Merge(nil, reqs)
	id, err := m.id(ctx, reqs)
	if err != nil {
		return "", err
	}
	if progress == nil {
		progress = func(string) {}
	}
	f, l, err := m.join(ctx, id, reqs)
	if err != nil {
		return "", err
	}
	defer m.leave(f, l)
	for {
		select {
		case line := <-l.lines:
			progress(line)
		case <-ctx.Done():
			return "", fmt.Errorf("waiting for packages: %w", context.Cause(ctx))
		case <-f.done:
			l.rest(progress)
			if f.err != nil {
				return "", f.err
			}
			return id, nil
		}
	}
}

// rest forwards the lines that are queued.
func (l *listener) rest(progress func(string)) {
	for {
		select {
		case line := <-l.lines:
			progress(line)
		default:
			return
		}
	}
}

// id returns the set's id. It queries the driver's platform once.
func (m *Manager) id(ctx context.Context, reqs Requirements) (string, error) {
	m.mu.Lock()
	platform := m.platform
	m.mu.Unlock()
	if platform == "" {
		report, err := m.driver.Report(ctx)
		if err != nil {
			return "", fmt.Errorf("determining the sandbox's platform: %w", err)
		}
		platform = report.Platform
		m.mu.Lock()
		m.platform = platform
		m.mu.Unlock()
	}
	return Hash(reqs, Origin{Platform: platform, Index: m.cfg.Index, Options: flags}), nil
}

// join joins the installation in progress, or starts one.
func (m *Manager) join(ctx context.Context, id string, reqs Requirements) (*flight, *listener, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	for old, f := range m.failures {
		if now.Sub(f.at) >= m.cfg.Remember {
			delete(m.failures, old)
		}
	}
	if old, ok := m.failures[id]; ok {
		again := *old.err
		again.Ago = max(now.Sub(old.at), time.Second)
		return nil, nil, &again
	}
	f := m.flights[id]
	if f == nil || f.abandoned {
		run, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
		f = &flight{cancel: cancel, done: make(chan struct{}), earlier: f, listeners: map[*listener]struct{}{}}
		m.flights[id] = f
		go m.fly(run, f, id, reqs)
	}
	l := &listener{lines: make(chan string, 64)}
	f.listeners[l] = struct{}{}
	return f, l, nil
}

var errAbandoned = errors.New("all callers have given up")

func (m *Manager) leave(f *flight, l *listener) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(f.listeners, l)
	if len(f.listeners) == 0 {
		f.abandoned = true
		f.cancel(errAbandoned)
	}
}

// fly carries out one installation for all waiters.
func (m *Manager) fly(ctx context.Context, f *flight, id string, reqs Requirements) {
	if f.earlier != nil {
		<-f.earlier.done
		f.earlier = nil
	}
	err := m.provide(ctx, f, id, reqs)
	m.mu.Lock()
	f.err = err
	if failed, ok := errors.AsType[*Error](err); ok {
		m.failures[id] = failure{err: failed, at: m.now()}
	}
	if m.flights[id] == f {
		delete(m.flights, id)
	}
	close(f.done)
	m.mu.Unlock()
	f.cancel(nil)
}

// provide creates the set if it does not exist.
func (m *Manager) provide(ctx context.Context, f *flight, id string, reqs Requirements) error {
	if there, err := m.find(ctx, id); there || err != nil {
		return err
	}
	args, err := m.cfg.args(reqs)
	if err != nil {
		return err
	}
	if err := m.turn(ctx, f); err != nil {
		return err
	}
	defer func() { <-m.slots }()
	limited, cancel := context.WithTimeout(ctx, m.cfg.Timeout)
	defer cancel()
	read := &lines{progress: func(line string) { m.notify(f, line) }}
	began := m.now()
	err = m.driver.Install(limited, driver.Install{
		ID: id, Args: args, Output: read.line, MaxBytes: m.cfg.MaxBytes,
	})
	if err != nil {
		err = read.explain(limited, err)
		m.cfg.Log.Warn("cannot install packages", "set", id, "requirements", reqs.Strings(), "err", err)
		return err
	}
	m.cfg.Log.Info("installed packages", "set", id, "requirements", reqs.Strings(), "packages", read.made.packages,
		"bytes", read.made.bytes, "files", read.made.files, "took", m.now().Sub(began))
	m.use(id)
	if _, err := m.Collect(ctx); err != nil {
		m.cfg.Log.Warn("cannot remove package sets", "err", err)
	}
	return nil
}

// turn waits until the installation may run: each one uses memory, processors and disk in
// addition to the sandboxes.
func (m *Manager) turn(ctx context.Context, f *flight) error {
	select {
	case m.slots <- struct{}{}:
		return nil
	default:
	}
	m.notify(f, "waiting for other installations")
	select {
	case m.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for other installations: %w", context.Cause(ctx))
	}
}

// find reports whether the set exists, and if so marks it as used now.
func (m *Manager) find(ctx context.Context, id string) (bool, error) {
	m.removing.RLock()
	defer m.removing.RUnlock()
	sets, err := m.driver.Sets(ctx)
	if err != nil {
		return false, fmt.Errorf("listing package sets: %w", err)
	}
	there := slices.ContainsFunc(sets, func(s driver.Set) bool { return s.ID == id })
	if there {
		m.use(id)
	}
	return there, nil
}

func (m *Manager) use(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used[id] = m.now()
}

// notify sends a line to all waiters; slow ones miss it.
func (m *Manager) notify(f *flight, line string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for l := range f.listeners {
		select {
		case l.lines <- line:
		default:
		}
	}
}
