package toolrunner

import (
	"reflect"
	"slices"
	"sync"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/executor/engine"
)

// offering is what the runner announces: its own tools, those for skills while there are any,
// those of MCP servers and of plugins, and the notes of the project.
type offering struct {
	out *engine.Offers

	mu                        sync.Mutex
	own, skills, mcp, plugins []tool.Spec
	project                   *event.Project // of the workspace
	last                      engine.Offer
}

func newOffering(own []tool.Spec) *offering {
	return &offering{out: engine.NewOffers(), own: own, last: engine.Offer{Tools: own}}
}

// put changes the offering, and announces it if it has changed.
func (o *offering) put(change func(*offering)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	change(o)
	now := engine.Offer{Tools: slices.Concat(o.own, o.skills, o.mcp, o.plugins), Project: o.project}
	if reflect.DeepEqual(now, o.last) {
		return
	}
	o.last = now
	o.out.Put(now)
}

// now returns what is offered.
func (o *offering) now() engine.Offer {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.last
}
