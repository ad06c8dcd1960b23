package shell

import (
	"context"
	"errors"
	"fmt"
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/core/retention"
	"skandha.dev/services/internal/archive"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/workspace"
)

// Retention says what leaves the log.
type Retention struct {
	Keep     retention.Keep
	Archive  func(context.Context) (archive.Store, error) // nil: what leaves is deleted
	Every    time.Duration
	Settle   time.Duration // see [retention.Config]
	Undelete time.Duration // how long a deleted session can be brought back
}

func (c *Core) newRetention() *retention.Retention {
	r := c.cfg.Retention
	return retention.New(retention.Config{
		Bus: c.bus, Store: c.store, Log: c.log, Keep: r.Keep, Archive: r.Archive, Every: r.Every, Settle: r.Settle,
		Leads: func(ctx context.Context) bool {
			// An older core could not fold the checkpoints.
			return c.refill.Leads() && c.refill.State(ctx).State == coreapi.ViewComplete && c.dir.OldestFold() == decide.FoldVersion
		},
		Checkpoint: c.sessions.Checkpoint, Trims: c.views.Trims, Audited: c.auditor.Audited, Forget: c.forget,
	})
}

// TrimNow starts a run of retention.
func (c *Core) TrimNow() { c.retain.Wake() }

// forget removes what is kept of a deleted session outside of the log and the archive. What the agent has learned stays:
// it belongs to the agent.
func (c *Core) forget(ctx context.Context, ref subject.Ref) error {
	artifacts, err := c.bus.Artifacts(ctx, ref.String()+"/")
	for _, a := range artifacts {
		err = errors.Join(err, c.bus.DeleteArtifact(ctx, a.Name))
	}
	return errors.Join(err, workspace.Delete(ctx, c.bus, ref), c.schedule.Forget(ctx, ref))
}

// retentionFault returns what keeps turns from leaving the log.
func (c *Core) retentionFault() *coreapi.Fault {
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
