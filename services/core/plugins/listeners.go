package plugins

import (
	"context"
	"slices"
	"time"

	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/periodic"
	"skandha.dev/services/internal/senses"
)

const (
	guardEvery = time.Second
	guardWait  = 3 * time.Second // for the bus to answer
)

// listenerOwner is what owns the names of configured listeners.
const listenerOwner = "the listener service"

// listens reports whether a name belongs to a listener of the listener service: one of this core's
// configuration, or one that has reported its state and not been stopped since. It may be away: what
// waits for it must not go to a plugin that takes its name. (A plugin delivers only for listeners that
// its manifest declares.)
func (p *Host) listens(ctx context.Context, name string) bool {
	if !subject.Valid(name) {
		return false
	}
	if slices.Contains(p.cfg.Listeners, name) {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, guardWait)
	defer cancel()
	known, err := senses.Known(ctx, p.deps.Bus, subject.Writer(name))
	if err != nil && p.ctx.Err() == nil { // the guard asks again
		p.deps.Log.Warn("cannot read the reports of listeners", "listener", name, "error", err)
	}
	return known
}

// ListenerOwner returns whose the name of a listener is, if it is one of the listener service; else nothing.
func (p *Host) ListenerOwner(ctx context.Context, w subject.Writer) string {
	if p.listens(ctx, string(w)) {
		return "a listener of " + listenerOwner
	}
	return ""
}

// guard suspends plugins that have the name of a listener that has reported since they registered.
func (p *Host) guard(ctx context.Context) {
	periodic.Every(ctx, guardEvery, func() {
		for _, pl := range p.Current().Plugins() {
			if pl.State == plugin.Gone || pl.State == plugin.Suspended {
				continue
			}
			for _, l := range slices.Concat(pl.Manifest.Listeners, pl.Manifest.Sensors) {
				if p.listens(ctx, string(l.Name)) {
					p.suspend(pl.Name(), "its listener "+string(l.Name)+" is one of "+listenerOwner+"; rename one of them")
					break
				}
			}
		}
	})
}
