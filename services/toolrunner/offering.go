package toolrunner

import (
	"reflect"
	"slices"
	"sync"

	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/executor/engine"
)

// offering is what the runner announces: its own tools, those for skills while there are any,
// and those of plugins.
type offering struct {
	out *engine.Offers

	mu                   sync.Mutex
	own, skills, plugins []tool.Spec
	last                 []tool.Spec
}

func newOffering(own []tool.Spec) *offering {
	return &offering{out: engine.NewOffers(), own: own, last: own}
}

// put changes the offering, and announces it if it has changed.
func (o *offering) put(change func(*offering)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	change(o)
	specs := slices.Concat(o.own, o.skills, o.plugins)
	if reflect.DeepEqual(specs, o.last) {
		return
	}
	o.last = specs
	o.out.Put(engine.Offer{Tools: specs})
}
