package shell

import (
	"context"
	"fmt"
	"iter"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/retention"
	"skandha.dev/services/internal/archive"
	"skandha.dev/services/internal/coreapi"
)

// Retention says what leaves the log.
type Retention struct {
	On      bool
	Keep    retention.Keep
	Archive func(context.Context) (archive.Store, error) // nil: what leaves is deleted
	Every   time.Duration
	Settle  time.Duration // see [retention.Config]
}

func (c *Core) newRetention() *retention.Retention {
	r := c.cfg.Retention
	if !r.On {
		return nil
	}
	return retention.New(retention.Config{
		Bus: c.bus, Store: c.store, Log: c.log, Keep: r.Keep, Archive: r.Archive, Every: r.Every, Settle: r.Settle,
		Leads: func(ctx context.Context) bool {
			return c.refill.Leads() && c.refill.State(ctx).State == coreapi.ViewComplete
		},
		Checkpoint: c.sessions.Checkpoint, Trims: c.views.Trims, Audited: c.auditor.Audited,
	})
}

// TrimNow starts a run of retention, if it is on.
func (c *Core) TrimNow() {
	if c.retain != nil {
		c.retain.Wake()
	}
}

// messages yields what happened in a session: from the archive, if this core has one, and from the log.
func (c *Core) messages(ctx context.Context, ref subject.Ref, after uint64) iter.Seq2[bus.StoredMsg, error] {
	if c.retain == nil {
		return c.bus.Messages(ctx, ref, after)
	}
	return c.retain.Messages(ctx, ref, after)
}

// retentionFault returns what keeps turns from leaving the log.
func (c *Core) retentionFault() *coreapi.Fault {
	if c.retain == nil {
		return nil
	}
	s := c.retain.Status()
	switch {
	case s.Error != "":
		return &coreapi.Fault{What: coreapi.FaultRetention, Message: "turns cannot leave the log: " + s.Error, Since: s.Ran}
	case s.Stuck:
		return &coreapi.Fault{What: coreapi.FaultRetention, Since: s.Ran, Message: fmt.Sprintf(
			"the log is more than %d%% full, and what it holds cannot leave: open turns, the latest turn of each session, "+
				"and states that are as large as what would leave; raise streams.max_bytes", c.cfg.Retention.Keep.Fill)}
	}
	return nil
}
