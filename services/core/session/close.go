package session

import (
	"time"

	"skandha.dev/services/core/attempt"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/internal/executor"
)

// closer asks runners to stop the calls that are about to be ended, until each has a final
// answer or is given up.
type closer struct {
	s        *session
	open     map[string]decide.Step // by call
	closings decide.Closings
	answers  chan attempt.Answer
	cancels  []func() // of reply handlers

	tries        int           // since the bus was last disconnected
	connectedFor time.Duration // since then
}

// closeCalls asks runners to stop the calls that are about to be ended, and waits
// for their answers (rule 10). Meanwhile it extends the held deliveries. It gives up
// on a runner only once the call can no longer start there, or if it is idempotent.
// ok is false if the core ends meanwhile.
func (s *session) closeCalls(steps []decide.Step) (closings decide.Closings, ok bool) {
	if len(steps) == 0 {
		return nil, true
	}
	c := &closer{
		s: s, open: map[string]decide.Step{}, closings: decide.Closings{},
		answers: make(chan attempt.Answer, 16*len(steps)), tries: 1,
	}
	defer c.cancel()
	for _, st := range steps {
		c.open[st.Call] = st
		c.stop(st)
	}
	keep, tick := time.NewTicker(extendAfter), time.NewTicker(askEvery)
	defer keep.Stop()
	defer tick.Stop()
	for len(c.open) > 0 {
		select {
		case a := <-c.answers:
			c.take(a)
		case <-s.set.ctx.Done():
			return nil, false
		case <-keep.C:
			s.takeIn()
			s.extend()
		case <-tick.C:
			c.askAgain()
		}
	}
	return c.closings, true
}

// stop asks the runner of a call to stop it. A reply that finds no room is dropped: the
// runner is asked again.
func (c *closer) stop(st decide.Step) {
	id := c.s.attemptOf(&st)
	cancel, err := c.s.Attempts.Send(c.s.ctx, id, id.Encode(executor.OpStop), func(a attempt.Answer) {
		select {
		case c.answers <- a:
		default:
		}
	})
	if err == nil {
		c.cancels = append(c.cancels, cancel)
	}
}

func (c *closer) cancel() {
	for _, cancel := range c.cancels {
		cancel()
	}
}

// take closes a call with the final answer of its runner.
func (c *closer) take(m attempt.Answer) {
	st, is := c.open[m.Call]
	if is && !m.Gone && m.State.Final() && m.Attempt == st.Attempt {
		c.close(m.Call, decide.Closing{Answer: m.Answer})
	}
}

// askAgain gives up the calls whose runner is unreachable, and asks about the others again.
func (c *closer) askAgain() {
	if c.s.Bus.Connected() {
		c.connectedFor += askEvery
		c.tries++
	} else {
		c.connectedFor, c.tries = 0, 0
	}
	for call, st := range c.open {
		if c.hopeless(st) {
			c.close(call, decide.Closing{Unreachable: true})
		} else {
			c.stop(st)
		}
	}
}

// hopeless reports whether the runner of a call was asked for long enough, and may be
// given up.
func (c *closer) hopeless(st decide.Step) bool {
	return c.tries >= 3 && c.connectedFor >= unreachable &&
		(st.Idempotent || time.Now().After(st.StartBy.Add(executor.Skew)))
}

func (c *closer) close(call string, how decide.Closing) {
	c.closings[call] = how
	delete(c.open, call)
}

// takeIn holds deliveries that have arrived meanwhile, so that they are extended. They are processed when the loop continues.
func (s *session) takeIn() {
	for _, d := range s.mailbox.takeDeliveries() {
		if s.held[d.Seq] == nil || d.NumDelivered >= s.held[d.Seq].NumDelivered {
			s.hold(d)
		}
	}
}

// extend extends every held delivery. The loop itself calls it, or a bounded wait
// in patiently, so that a hung loop loses its deliveries (rule 3).
func (s *session) extend() {
	for _, h := range s.held {
		s.extendOne(h)
	}
}

func (s *session) extendOne(h *held) {
	h.extended = time.Now()
	if err := h.InProgress(); err != nil {
		s.Log.Debug("extending a delivery", "session", s.ref, "cause", h.Seq, "error", err)
	}
}
