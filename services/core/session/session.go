package session

import (
	"context"
	"log/slog"
	"runtime/debug"
	"slices"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/attempt"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/core/directory"
	"skandha.dev/services/internal/journal"
)

// The times of the drive loop.
const (
	tickEvery   = 500 * time.Millisecond
	extendAfter = 700 * time.Millisecond // with the ticks, once a second
	settleEvery = 200 * time.Millisecond // at most this long while there is mail
	loadPause   = 200 * time.Millisecond // after the log could not be read
	lookEvery   = 2 * time.Second        // interval of reading the last commit while deliveries are held (rule 3)
)

// AckWait is how long a delivery may stay without being extended. Then it goes to another
// core.
const AckWait = 2500 * time.Millisecond

// session serves one session. Its goroutine is the only one of this process that
// decides for it, holds its deliveries and drives its turn.
type session struct {
	*Deps
	set *Set
	ref subject.Ref
	ctx context.Context //nolint:containedctx // the loop outlives every call; carries the trace of the latest cause

	mailbox mailbox
	state   *decide.State // nil until loaded
	// passed is the last cause without effect. It moved no cursor but need not be read again.
	passed    uint64
	held      map[uint64]*held
	work      map[string]*work
	timers    map[string]bool // confirmation ids whose schedule was acknowledged
	about     uint64          // the cause that is being decided
	delivery  uint64          // the delivery up to which causes are being decided
	mark      mark            // of what is being decided, if it is suspected
	looked    time.Time
	verified  time.Time // the state includes what the log held then
	failed    time.Time // when loading failed last; zero: it succeeded
	settledAt time.Time
	asked     *checkpointMail     // that is to be stored; nil: none
	doubt     doubt               // whether the log is damaged
	tried     time.Time           // last try to assign waiting work
	poked     bool                // an executor arrived, left or has a free slot
	claimant  *directory.Claimant // of slots at executors

	reconnects uint64 // of the bus, when the executors were last checked
	bouncedAt  time.Time
}

// held is a delivery that is not acknowledged yet.
type held struct {
	delivery
	extended time.Time
	since    time.Time // when this core was first delivered the cause
	// survived has the decisions that this core has tried once, without a result: see begin.
	survived map[string]bool
}

// Mail of a session, besides [attempt.Answer].
type (
	delivery struct {
		journal.Delivery
		at      subject.CauseSubject
		queues  bool // an input that does not affect a running turn
		arrived time.Time
		fresh   bool // no other process can have died of it: see trusts
	}
	pokeMail  struct{}
	stopMail  struct{}
	renewMail struct{ log bool } // streams were lost: that of the log, or of timers
)

func (s *session) run() {
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.mailbox.signal:
		case <-tick.C:
		}
		stop := false
		for {
			if s.poked && s.mailbox.turnless() {
				s.guard(s.drive) // a slot may be free for the turn: take it before the input
			}
			m, ok := s.mailbox.take()
			if !ok {
				break
			}
			if _, is := m.(stopMail); is {
				stop = true
				continue
			}
			s.guard(func() { s.handle(m) })
			s.guard(s.checkpoint)
			if time.Since(s.settledAt) > settleEvery { // more mail may come than ever is handled
				s.settle()
			}
		}
		s.guard(s.drive)
		s.guard(s.checkpoint)
		s.Directory.Unclaim(s.claimant)
		s.settle()
		s.keepGate()
		if stop {
			s.handBack(0) // so that another core takes over at once
		}
		gathers := len(s.held) == 0 && time.Now().Before(s.doubt.next) && !stop // see newer
		if !gathers && s.idle() && s.set.retire(s) {
			return
		}
	}
}

// guard recovers a panic (rule 13). The held deliveries are handed back, and a cause
// whose decision keeps panicking ends as poison.
func (s *session) guard(f func()) {
	defer func() {
		if r := recover(); r != nil {
			s.Log.ErrorContext(s.ctx, "core panicked; its deliveries will be redelivered", "session", s.ref, "panic", r,
				"stack", string(debug.Stack()))
			s.set.stats.Panics.Add(1)
			if s.about != 0 {
				s.set.panics.Add(panicKey{s.ref, s.about}, s.panics(s.about)+1)
				s.about = 0
			}
			s.state = nil
			s.handBack(time.Second)
		}
	}()
	defer s.endMark()
	f()
}

func (s *session) handle(m any) {
	switch m := m.(type) {
	case delivery:
		s.onDelivery(m)
	case attempt.Answer:
		s.onAnswer(m)
	case pokeMail:
		s.poked = true
	case renewMail:
		s.renew(m)
	case checkpointMail:
		if s.asked != nil {
			s.asked.answer <- 0
		}
		s.asked = &m
	}
}

// hold keeps the latest delivery of a cause.
func (s *session) hold(d delivery) {
	h := &held{delivery: d, extended: time.Now(), since: d.arrived}
	if before := s.held[d.Seq]; before != nil { // it was not handed back, so nobody else had it for long
		h.fresh, h.since, h.survived = d.fresh || before.fresh, before.since, before.survived
	}
	s.held[d.Seq] = h
}

// release holds a delivery no longer.
func (s *session) release(seq uint64) {
	delete(s.held, seq)
	s.set.pressure.done(seq)
}

func (s *session) onDelivery(d delivery) {
	again := s.held[d.Seq] != nil || d.NumDelivered > 1
	// A new cause cannot be processed already, unless the log lost its end and reuses sequences.
	again = again || s.state != nil && d.Seq <= max(s.state.Cursor, s.passed)
	s.hold(d)
	if s.state == nil || again && !s.verified.After(d.arrived) {
		if !s.load() {
			return
		}
	}
	if !d.queues {
		s.processUpTo(d.Seq)
		return
	}
	if next := s.nextInput(max(s.state.Cursor, s.passed)); next == d.Seq && s.takesInput(s.held[next]) {
		s.processUpTo(d.Seq)
	}
}

// processUpTo decides every cause up to n, in the order of the log (rule 2).
func (s *session) processUpTo(n uint64) {
	s.delivery = n
	defer func() { s.delivery = 0 }()
	for s.state != nil && max(s.state.Cursor, s.passed) < n {
		next := s.readCauses(max(s.state.Cursor, s.passed), n)
		if h := s.held[n]; h != nil && s.guessable(h) {
			// Usually no other cause comes first: decide while the log is read.
			d := s.guess(h)
			c, ok := next()
			if ok && c.Seq == n && d != nil {
				if s.commit(d) != undecided {
					continue
				}
				return
			}
			if !ok || !s.process(c, n) {
				return
			}
			continue
		}
		if c, ok := next(); !ok || !s.process(c, n) {
			return
		}
	}
}

// readCauses starts to read the first cause after after, up to upTo. The function that
// it returns waits for the result.
func (s *session) readCauses(after, upTo uint64) func() (bus.StoredMsg, bool) {
	type result struct {
		m     bus.StoredMsg
		found bool
		err   error
	}
	got := make(chan result, 1)
	ctx := s.ctx
	go func() {
		m, found, err := s.Bus.NextCause(ctx, s.ref, after, upTo)
		got <- result{m, found, err}
	}()
	return func() (bus.StoredMsg, bool) {
		r := <-got
		if r.err != nil {
			s.set.warn("reading causes", "session", s.ref, "after", after, "error", r.err)
			return bus.StoredMsg{}, false
		}
		if !r.found && s.vanished(upTo) { // see NextCause: there is nothing to decide
			s.passed = upTo
		}
		return r.m, r.found
	}
}

// guessable reports whether the delivered cause may be decided before it is known to
// be the next: it is an input, delivered for the first time, without an open turn, and
// no plugin is asked.
func (s *session) guessable(h *held) bool {
	if h.NumDelivered != 1 || !h.fresh {
		return false
	}
	hooks := s.Plugins.Current().Hooks
	if slices.ContainsFunc([]hook.Point{hook.BeforeSense, hook.AfterSense, hook.BeforePlan, hook.OnError}, hooks.Any) {
		return false
	}
	return h.at.Kind == subject.Input && s.state.Turn == nil
}

func (s *session) guess(h *held) *decide.Decision {
	s.ctx = s.traceOf(h.at.Kind, h.StoredMsg)
	var d *decide.Decision
	s.deciding(h.Seq, func() bool {
		d, _ = decide.OnCause(s.state, h.Seq, causeOf(h.at, h.StoredMsg), nil, s.env(h.NumDelivered))
		return true
	})
	return d
}

func causeOf(at subject.CauseSubject, m bus.StoredMsg) decide.Cause {
	return decide.ReadCause(m.Seq, at, m.Time, m.Data)
}

// process decides one cause at the given delivery, and reports whether it is decided.
func (s *session) process(m bus.StoredMsg, delivery uint64) bool {
	h := s.held[delivery]
	if h == nil {
		return false
	}
	at, err := subject.ParseCause(m.Subject)
	if err != nil || at.Ref != s.ref || journal.IsNoise(m) {
		s.passed = m.Seq
		return true
	}
	// Only inputs and commands create a session. For other causes, a begin must not be
	// stored either.
	makes := s.state.Rev > 0 || at.Kind == subject.Input || at.Kind == subject.Command
	if makes {
		if poison, ok := s.begin(m.Seq, h, "cause"); !ok {
			return false
		} else if poison {
			return s.endPoison(m, h)
		}
	}
	s.ctx = s.traceOf(at.Kind, m)
	return s.deciding(m.Seq, func() bool { return s.decideCause(m, at, h) })
}

// decideCause decides a cause at the delivery h until a commit is stored, or there is
// certainly nothing to commit.
func (s *session) decideCause(m bus.StoredMsg, at subject.CauseSubject, h *held) bool {
	c := causeOf(at, m)
	for range maxDecisions {
		closings, ok := s.closeCalls(decide.MustClose(s.state, c))
		if !ok {
			return false
		}
		env := s.env(h.NumDelivered)
		d, reason := decide.OnCause(s.state, h.Seq, c, closings, env)
		if d == nil {
			if fresh, ok := s.fresh(m.Seq); !ok {
				return false
			} else if !fresh {
				continue
			}
			s.noEffect(m, at, reason)
			return true
		}
		switch s.commit(d) {
		case committed:
			return true
		case undecided:
			return false
		case lost:
			if s.state == nil {
				return false
			}
			if s.state.Cursor >= m.Seq {
				return true
			}
		}
	}
	return false
}

// maxDecisions bounds how often one cause is decided in a row while other cores win
// the fence. The next tick tries again.
const maxDecisions = 64

// noEffect notes a cause that permanently changes nothing (rule 5). It is stored as a
// dead letter, so that its sender can find out why.
func (s *session) noEffect(m bus.StoredMsg, at subject.CauseSubject, reason string) {
	level := slog.LevelDebug
	if at.Kind == subject.Confirmation { // in an existing session, decide audits it
		level = slog.LevelWarn
	}
	s.Log.Log(s.ctx, level, "a cause had no effect", "session", s.ref, "cause", m.Seq, "kind", at.Kind,
		"writer", at.Writer, "reason", reason)
	if m.Seq > s.state.Cursor {
		s.passed = m.Seq
		s.set.deadLetter(s.ctx, s.ref, m, reason)
	}
}

// fresh ensures that the state covers every commit below n. fresh is false if the state
// lagged behind and was refolded; ok is false if the log cannot be read now.
func (s *session) fresh(n uint64) (fresh, ok bool) {
	if s.state.Rev > n {
		return true, true
	}
	last, err := s.Bus.LastCommitSeq(s.ctx, s.ref)
	if err != nil {
		s.Log.WarnContext(s.ctx, "reading the last commit", "session", s.ref, "error", err)
		return false, false
	}
	if last == s.state.Rev {
		return true, true
	}
	return false, s.load()
}

// settle acknowledges what may be acknowledged (rule 4), and extends the rest.
func (s *session) settle() {
	s.settledAt = time.Now()
	for seq, h := range s.held {
		if s.settled(seq) {
			if err := h.Ack(); err != nil {
				s.Log.Debug("acknowledging a cause", "session", s.ref, "cause", seq, "error", err)
			}
			s.release(seq) // a lost ack is harmless: the cause is redelivered and settled again
			continue
		}
		if time.Since(h.extended) > extendAfter {
			s.extendOne(h)
		}
	}
}

func (s *session) settled(seq uint64) bool {
	switch {
	case s.state == nil || max(s.state.Cursor, s.passed) < seq:
		return false
	case s.state.Driver != seq:
		return true
	}
	return s.state.Parked() && s.scheduled()
}

func (s *session) scheduled() bool {
	return !slices.ContainsFunc(s.state.Confirmations(), func(st decide.Step) bool { return !s.timers[st.Call] })
}

// driving reports whether this core holds the driver's delivery.
func (s *session) driving() bool {
	return s.state != nil && s.state.Driver != 0 && s.held[s.state.Driver] != nil
}

func (s *session) idle() bool { return len(s.held) == 0 && len(s.work) == 0 && s.asked == nil }

// handBack returns all deliveries to the server, which redelivers them to any core after
// the delay.
func (s *session) handBack(delay time.Duration) {
	s.withdrawAll()
	s.dropWork()
	for _, h := range s.held {
		s.giveBack(h, delay)
	}
}

func (s *session) giveBack(h *held, delay time.Duration) {
	if err := h.Nak(delay); err != nil {
		s.Log.Debug("handing back a delivery", "session", s.ref, "cause", h.Seq, "error", err)
	}
	s.release(h.Seq)
}
