package shell

import (
	"context"
	"fmt"
	"strings"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/core/loader"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/store"
)

// If streams are lost while cores run, the first core that notices creates them again.
// From then on, nothing that this core holds of the old streams is valid: deliveries,
// scheduled timers and the ack floor refer to sequences that are used again. A state is
// compared with the log before it is used, as after a start: see [loader.Loader.Load] and
// schemas/adr/0021.

// renewMail informs a session that streams were lost.
type renewMail struct{ log bool }

// renewed handles streams that were created again.
func (c *Core) renewed(r journal.Renewal) {
	why := fmt.Sprintf("at %s, %d of the streams were lost and created again (%s)",
		r.At.Format(time.RFC3339), len(r.Streams), strings.Join(r.Streams, ", "))
	switch {
	case r.Log():
		why = "the log was deleted, or the server restarted without it: " + why +
			"; sessions start anew, or are locked until /repair if commits of the last seconds are known"
	case r.Timers():
		why += "; open confirmations get new timers"
	}
	if r.Log() || !c.troubles.has(subject.Ref{}) { // the loss of the log itself stays listed
		c.troubles.note(subject.Ref{}, coreapi.TroubleLog, why)
	}
	c.log.Error("ALARM: streams were lost and created again", "error", why)
	if r.Log() {
		c.forgetLog()
	}
	if !r.Log() && !r.Timers() {
		return
	}
	c.mu.Lock()
	for _, s := range c.sessions {
		s.mailbox.put(renewMail{r.Log()})
	}
	c.mu.Unlock()
	if !r.Log() {
		go c.scheduleAll()
	}
}

// forgetLog drops what this core knows of a lost log, outside of open sessions.
func (c *Core) forgetLog() {
	c.mu.Lock()
	c.newLog = time.Now()
	c.mu.Unlock()
	c.overflow.clear()
	c.views.ForgetFloor()
	go func() {
		ctx, cancel := context.WithTimeout(c.ctx, 2*time.Second)
		defer cancel()
		if err := c.refill.Identify(ctx); err != nil {
			c.log.Debug("reading the identity of the log", "error", err) // the next comparison reads it
		}
	}()
}

// ofOldLog reports whether a state may belong to a log that was lost while this core was
// running. The caller holds c.mu.
func (c *Core) ofOldLog(s *decide.State) bool {
	return s != nil && !c.newLog.IsZero() && !s.Now.After(c.newLog.Add(loader.ClockSkew))
}

// renew drops what the session holds of streams that were lost. Its deliveries are not
// acknowledged, because the ack might apply to another cause with the same sequence. If
// the new log holds their cause, it is delivered again.
func (s *session) renew(m renewMail) {
	clear(s.timers)
	if !m.log {
		return
	}
	s.dropWork()
	s.c.dir.Leave(s.claimant)
	clear(s.held)
	s.passed = 0
	if s.state != nil {
		s.doubt, s.state = doubt{base: s.state}, nil
	}
}

// vanished handles a held delivery whose cause is not in the log. It reports whether the
// cause was certainly deleted. A log that ends before the cause is another log, or has lost
// its end. In that case the delivery is dropped; if the log holds its cause after all, it
// is delivered again.
func (s *session) vanished(seq uint64) (deleted bool) {
	log, err := s.c.bus.LogState(s.ctx)
	if err != nil {
		s.c.log.Debug("checking the end of the log", "session", s.ref, "error", err)
		return false
	}
	h := s.held[seq]
	if h == nil || log.Last >= seq && !log.Created.After(h.Time.Add(loader.ClockSkew)) {
		return true
	}
	s.c.log.Warn("dropping a delivery of a log that was lost", "session", s.ref, "cause", seq, "log_ends", log.Last)
	delete(s.held, seq)
	return false
}

// asking lists the cached sessions that wait for confirmations.
func (c *Core) asking() (refs []subject.Ref) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for ref, e := range c.cache.index {
		if len(e.Value.(*decide.State).Confirmations()) > 0 {
			refs = append(refs, ref)
		}
	}
	return refs
}

// scheduleAll schedules the timers of all open confirmations again. The sessions that
// wait for them are usually not open: this core or the view knows them.
func (c *Core) scheduleAll() {
	for _, ref := range c.asking() {
		c.reschedule(ref)
	}
	for after := ""; ; {
		page, next, err := c.store.ListSessions(c.ctx, "", store.MaxPage, after)
		if err != nil {
			c.log.Warn("scheduling lost timers again; those of idle sessions stay lost", "error", err)
			return
		}
		for _, i := range page {
			if i.Phase != string(event.StateWaiting) {
				c.reschedule(subject.Ref{Agent: subject.Agent(i.Agent), Session: subject.Session(i.Session)})
			}
		}
		if after = next; after == "" {
			return
		}
	}
}

// reschedule schedules the timers of a session's open confirmations again. A timer with
// the same id replaces the one that another core has scheduled.
func (c *Core) reschedule(ref subject.Ref) {
	s, err := c.loader.Load(c.ctx, ref, nil)
	if err != nil {
		c.log.Warn("scheduling the timers of a session again", "session", ref, "error", err)
		return
	}
	for _, st := range s.Confirmations() {
		if err := c.bus.ScheduleTimer(c.ctx, ref, st.Call, st.ExpiresAt); err != nil {
			c.log.Warn("scheduling a timer again", "session", ref, "call", st.Call, "error", err)
		}
	}
}
