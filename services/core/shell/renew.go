package shell

import (
	"context"
	"fmt"
	"strings"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/store"
)

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
	if r.Log() || !c.troubles.Has(subject.Ref{}) { // the loss of the log itself stays listed
		c.troubles.Note(subject.Ref{}, coreapi.TroubleLog, why)
	}
	c.auditor.Wake() // it looks whether the audit log was among them
	c.log.Error("ALARM: streams were lost and created again", "error", why)
	if r.Log() || r.Timers() {
		c.sessions.Renew(r.Log())
	}
	switch {
	case r.Log():
		c.views.ForgetFloor()
		go c.identifyLog()
	case r.Timers():
		go c.scheduleAll()
	}
}

func (c *Core) identifyLog() {
	ctx, cancel := context.WithTimeout(c.ctx, 2*time.Second)
	defer cancel()
	if err := c.refill.Identify(ctx); err != nil {
		c.log.Debug("reading the identity of the log", "error", err) // the next comparison reads it
	}
}

// scheduleAll schedules the timers of all open confirmations again. The sessions that
// wait for them are usually not open: this core or the view knows them.
func (c *Core) scheduleAll() {
	for _, ref := range c.sessions.Asking() {
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
	c.scheduleOpen(c.ctx, s)
}

// scheduleOpen schedules the timers of a state's open confirmations again.
func (c *Core) scheduleOpen(ctx context.Context, s *decide.State) {
	for _, st := range s.Confirmations() {
		if err := c.bus.ScheduleTimer(ctx, s.Ref, st.Call, st.ExpiresAt); err != nil {
			c.log.Warn("scheduling a timer again", "session", s.Ref, "call", st.Call, "error", err)
		}
	}
}
