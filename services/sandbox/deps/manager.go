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

// Manager makes package sets, keeps them and removes them. Its methods may be used
// at the same time.
type Manager struct {
	cfg    Config
	driver driver.Driver
	now    func() time.Time
	slots  chan struct{} // one element for each installation that runs

	mu       sync.Mutex
	platform string
	flights  map[string]*flight
	failures map[string]failure
	used     map[string]time.Time // of sets, when Ensure last gave them out

	collecting sync.Mutex   // one Collect at a time
	removing   sync.RWMutex // no set is removed between being found and being marked as used
}

type failure struct {
	err *Error
	at  time.Time
}

// flight is an installation that is under way, and all who wait for it.
type flight struct {
	cancel  context.CancelCauseFunc
	done    chan struct{} // closed when err is set
	err     error
	earlier *flight // one of the same id that nobody waits for any more, and that has to end first

	// Under Manager.mu:
	listeners map[*listener]struct{}
	forsaken  bool
}

// listener is one who waits. Progress is passed on in its own goroutine, so that
// nobody who is slow or has gone holds up the others.
type listener struct{ lines chan string }

// New checks the configuration. It does not need the driver to work yet.
func New(cfg Config, d driver.Driver) (*Manager, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("dependencies: %w", err)
	}
	return &Manager{
		cfg: cfg.withDefaults(), driver: d, now: time.Now, slots: make(chan struct{}, cfg.withDefaults().Installs),
		flights: map[string]*flight{}, failures: map[string]failure{}, used: map[string]time.Time{},
	}, nil
}

// Ensure has the packages installed, unless they are, and returns the id of their
// set for driver.Spec.Set; no requirements need no set: "". Who asks for the same at
// the same time waits for the same installation, which ends early only when all of
// them have gone. A failure is an [*Error] if the packages or the index are at
// fault.
//
// Progress is told what happens, in few words ("collecting numpy"), never after
// Ensure has returned; lines that it is too slow for are left out.
//
// The set stays for Config.Settle at least. A sandbox that is started later, or by a
// driver whose sets another service removes too, may meet driver.ErrNoSet: ask again.
func (m *Manager) Ensure(ctx context.Context, reqs Requirements, progress func(string)) (string, error) {
	if len(reqs) == 0 {
		return "", nil
	}
	if len(reqs) > MaxPackages {
		return "", &Error{Code: TooMany, Detail: fmt.Sprintf("%d, want at most %d", len(reqs), MaxPackages)}
	}
	if slices.ContainsFunc(reqs, func(r Requirement) bool { return r.name == "" }) {
		return "", errors.New("a requirement has no name; make them by Parse")
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

// rest passes on what is there.
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

// id is the set's. What the driver says of its platform is asked once.
func (m *Manager) id(ctx context.Context, reqs Requirements) (string, error) {
	m.mu.Lock()
	platform := m.platform
	m.mu.Unlock()
	if platform == "" {
		report, err := m.driver.Report(ctx)
		if err != nil {
			return "", fmt.Errorf("asking for the sandbox's platform: %w", err)
		}
		platform = report.Platform
		m.mu.Lock()
		m.platform = platform
		m.mu.Unlock()
	}
	return Hash(reqs, Origin{Platform: platform, Index: m.cfg.Index, Options: flags}), nil
}

// join waits for the installation that is under way, or begins one.
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
	if f == nil || f.forsaken {
		run, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
		f = &flight{cancel: cancel, done: make(chan struct{}), earlier: f, listeners: map[*listener]struct{}{}}
		m.flights[id] = f
		go m.fly(run, f, id, reqs)
	}
	l := &listener{lines: make(chan string, 64)}
	f.listeners[l] = struct{}{}
	return f, l, nil
}

var errNobody = errors.New("nobody waits for it any more")

func (m *Manager) leave(f *flight, l *listener) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(f.listeners, l)
	if len(f.listeners) == 0 {
		f.forsaken = true
		f.cancel(errNobody)
	}
}

// fly carries out one installation for all who wait.
func (m *Manager) fly(ctx context.Context, f *flight, id string, reqs Requirements) {
	if f.earlier != nil {
		<-f.earlier.done
		f.earlier = nil
	}
	err := m.provide(ctx, f, id, reqs)
	m.mu.Lock()
	f.err = err
	var failed *Error
	if errors.As(err, &failed) {
		m.failures[id] = failure{err: failed, at: m.now()}
	}
	if m.flights[id] == f {
		delete(m.flights, id)
	}
	close(f.done)
	m.mu.Unlock()
	f.cancel(nil)
}

// provide makes the set if it is not there.
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
	read := &lines{progress: func(line string) { m.tell(f, line) }}
	began := m.now()
	err = m.driver.Install(limited, driver.Install{
		ID: id, Args: args, Output: read.line, MaxBytes: m.cfg.MaxBytes, HostNetwork: m.cfg.HostNetwork,
	})
	if err != nil {
		err = read.explain(limited, err)
		m.cfg.Log.Warn("packages were not installed", "set", id, "requirements", reqs.Strings(), "err", err)
		return err
	}
	m.cfg.Log.Info("packages were installed", "set", id, "requirements", reqs.Strings(), "packages", read.made.packages,
		"bytes", read.made.bytes, "files", read.made.files, "took", m.now().Sub(began))
	m.use(id)
	if _, err := m.Collect(ctx); err != nil {
		m.cfg.Log.Warn("removing package sets", "err", err)
	}
	return nil
}

// turn waits until the installation may run: each takes memory, processors and disk
// beside those of the sandboxes.
func (m *Manager) turn(ctx context.Context, f *flight) error {
	select {
	case m.slots <- struct{}{}:
		return nil
	default:
	}
	m.tell(f, "waiting for other installations")
	select {
	case m.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for other installations: %w", context.Cause(ctx))
	}
}

// find reports whether the set is there; then it has been used just now.
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

// tell passes a line to all who wait; whoever is behind misses it.
func (m *Manager) tell(f *flight, line string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for l := range f.listeners {
		select {
		case l.lines <- line:
		default:
		}
	}
}
