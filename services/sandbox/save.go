package sandbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/workspace"
	"skandha.dev/services/sandbox/agent"
	"skandha.dev/services/sandbox/pool"
	"skandha.dev/services/sandbox/snapshot"
)

const (
	// saveWithin bounds a save, and so how long a session's next call waits for one.
	saveWithin = 20 * time.Second
	// A result waits for the save of at most smallChange bytes, for at most resultWaits.
	smallChange, resultWaits = 8 << 20, 2 * time.Second
	// markWithin bounds the note that a large change is not saved yet.
	markWithin = time.Second
	// maxSaves bounds the saves at a time.
	maxSaves = 4
	// saveOnExit bounds the saves that are still to do when the service stops.
	saveOnExit = 10 * time.Second
	// After a failure of the store, saves pause.
	minSavePause, maxSavePause = 15 * time.Second, 2 * time.Minute
)

// saver saves the files of sessions, which survive their sandboxes thereby.
type saver struct {
	store  *workspace.Store
	limits snapshot.Limits
	slots  chan struct{}
	tasks  sync.WaitGroup
	ctx    context.Context //nolint:containedctx // lives as long as the service
	stop   context.CancelFunc
}

// kept is what is saved of the files of a sandbox. The copy belongs to whatever has the session's turn.
type kept struct {
	copy *snapshot.Copy

	mu     sync.Mutex
	since  string         // the first call whose changes are not saved; empty: all are
	point  snapshot.Point // the latest call
	why    error          // why they are not saved, if that was tried
	said   string         // why, as the model was informed
	over   bool           // another instance has the session
	last   bool           // it was tried a last time before the sandbox ends
	retry  time.Time      // not before
	pause  time.Duration  // the last one
	closed int            // directories that cannot be read, as the model was informed
}

// changed notes that a call may have changed files. It reports whether they are to be saved now.
func (k *kept) changed(p snapshot.Point) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.since == "" {
		k.since = p.Call
	}
	k.point, k.last = p, false
	return !k.over && !time.Now().Before(k.retry)
}

// unsaved returns since which call changes are not saved, and why; since is empty if all are.
func (k *kept) unsaved() (since string, why error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.since, k.why
}

// due reports whether unsaved changes are to be tried again; finally, regardless of the pause, but only once.
func (k *kept) due(finally bool) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.since == "" || k.over {
		return false
	}
	if finally {
		tried := k.last
		k.last = true
		return !tried
	}
	return !k.retry.IsZero() && time.Now().After(k.retry)
}

// ended notes how a save has ended. It returns what the model has to know and does not know yet.
func (k *kept) ended(err error) (news string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.why, k.retry = err, time.Time{}
	if err == nil {
		k.since, k.said, k.pause = "", "", 0
		return ""
	}
	text := err.Error()
	var large *snapshot.TooLargeError
	var refused *agent.Error
	switch {
	case errors.Is(err, snapshot.ErrOvertaken):
		k.over = true
		return ""
	case errors.As(err, &large):
		text = "too large" // the sizes differ with each call
	case !errors.As(err, &refused): // of the store
		k.pause = min(max(2*k.pause, minSavePause), maxSavePause)
		k.retry = time.Now().Add(k.pause)
	}
	if k.said == text {
		return ""
	}
	k.said = text
	return fmt.Sprintf("the files in /workspace are not saved: %v. They are lost when the sandbox ends", err)
}

// save saves what a call did to the session's files, and adds to its result what the model has to know. If pending
// is not nil, the result is complete, but the save goes on: the caller must keep the session's turn until pending
// has returned.
func (s *Service) save(from context.Context, c call, at place, res tool.Result) (_ tool.Result, pending func()) {
	k := at.kept
	if k == nil || c.job.Reads {
		return res, nil
	}
	if !k.changed(snapshot.Point{Call: c.ID, Turn: turnSequence(c.turn), Packages: at.packages}) {
		return res, nil
	}
	// It outlives the call, in whose trace it is.
	ctx, cancel := context.WithTimeout(trace.ContextWithSpan(s.saver.ctx, trace.SpanFromContext(from)), saveWithin)
	ctx, end := s.steps.begin(ctx, stepSave)
	ch, err := k.copy.Look(ctx, at.sandbox)
	if err != nil || !ch.Any() {
		end(err)
		cancel()
		return withNotice(res, s.saved(c, k, err)), nil
	}
	if n := ch.Closed(); n > 0 && n != k.closed {
		res = withNotice(res, fmt.Sprintf("%d directories in /workspace cannot be read; the files in them are not saved", n))
	}
	k.closed = ch.Closed()
	wait := time.NewTimer(resultWaits)
	defer wait.Stop()
	if ch.Bytes > smallChange {
		wait.Reset(0)
		s.mark(ctx, k, c)
	}
	done := make(chan error, 1)
	go func() {
		defer cancel()
		err := s.store(ctx, k, at.sandbox, ch)
		end(err)
		done <- err
	}()
	select {
	case err := <-done:
		return withNotice(res, s.saved(c, k, err)), nil
	case <-wait.C:
		return res, func() { s.saved(c, k, <-done) }
	}
}

// mark stores that the call's changes are not saved yet, for the instance that gets the session if this one dies.
func (s *Service) mark(ctx context.Context, k *kept, c call) {
	ctx, cancel := context.WithTimeout(ctx, markWithin)
	defer cancel()
	since, _ := k.unsaved()
	if err := k.copy.Mark(ctx, since); err != nil {
		s.log.Debug("it is not stored that changes are not saved yet", "call", c.ID, "error", err)
	}
}

// store saves a change.
func (s *Service) store(ctx context.Context, k *kept, sandbox *pool.Sandbox, ch *snapshot.Change) error {
	select {
	case s.saver.slots <- struct{}{}:
		defer func() { <-s.saver.slots }()
	case <-ctx.Done():
		return ctx.Err()
	}
	k.mu.Lock()
	at := k.point
	k.mu.Unlock()
	return k.copy.Save(ctx, sandbox, ch, at)
}

// saved counts and logs how a save has ended, and returns what the model has to know.
func (s *Service) saved(c call, k *kept, err error) (news string) {
	news = k.ended(err)
	if err == nil {
		s.counts.saves.Add(1)
		return news
	}
	s.counts.saveFailures.Add(1)
	switch {
	case errors.Is(err, snapshot.ErrOvertaken):
		s.log.Info("another instance has the session; its files are no longer saved here", "agent", c.Agent, "session", c.Session)
	case news != "":
		s.log.Warn("the files of a session are not saved", "agent", c.Agent, "session", c.Session, "call", c.ID, "error", err)
	}
	return news
}

// resave tries again to save the files of a session in which no call works.
func (s *Service) resave(own *session) {
	s.saver.tasks.Go(func() {
		defer s.leases.leaveQuietly(own)
		ctx, cancel := context.WithTimeout(s.saver.ctx, saveWithin)
		defer cancel()
		if own.await(ctx) != nil {
			return
		}
		defer own.done()
		sandbox, k := s.leases.held(own)
		if k == nil {
			return
		}
		var c call
		c.Ref = own.ref
		ch, err := k.copy.Look(ctx, sandbox)
		if err == nil && ch.Any() {
			err = s.store(ctx, k, sandbox, ch)
		}
		s.saved(c, k, err)
	})
}

// finish waits for the saves in progress, and tries a last time to save what is not saved.
func (s *Service) finish() {
	late := time.AfterFunc(saveOnExit, s.saver.stop)
	defer late.Stop()
	if !s.bus.Connected() {
		s.saver.stop()
	}
	s.saver.tasks.Wait()
	for _, own := range s.leases.unsaved(true) {
		s.resave(own)
	}
	s.saver.tasks.Wait()
	s.saver.stop()
}
