package match

import (
	"slices"
	"sync"

	"skandha.dev/pkg/tool"
)

// Keeper keeps the catalog of the tools that it was last asked about. The zero Keeper is
// ready. It may be used by many goroutines at once.
type Keeper struct {
	mu      sync.Mutex
	digests []string
	catalog *Catalog
	known   map[string]described // by digest
}

// Catalog returns the catalog of the tools with their vectors. It prepares one if a tool has
// changed since the last call; the map of v must not change any more.
func (k *Keeper) Catalog(tools []tool.Spec, v Vectors) *Catalog {
	digests := make([]string, len(tools))
	for i, t := range tools {
		digests[i] = t.Digest()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.catalog == nil || !slices.Equal(k.digests, digests) {
		k.digests, k.catalog = digests, k.prepare(tools)
	}
	return k.catalog.With(v)
}

// prepare reads only the tools that are new.
func (k *Keeper) prepare(tools []tool.Spec) *Catalog {
	known := make(map[string]described, len(tools))
	c := prepare(tools, func(t tool.Spec) described {
		d, ok := k.known[t.Digest()]
		if !ok {
			d = describe(t)
		}
		known[t.Digest()] = d
		return d
	})
	k.known = known
	return c
}
