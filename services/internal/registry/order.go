package registry

import (
	"cmp"
	"container/heap"
	"fmt"
	"slices"
	"strings"

	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/subject"
)

// CycleError reports that plugins require to run before each other.
type CycleError struct {
	// Edges form the cycle, beginning with the plugin whose name sorts first.
	Edges []Edge
}

// Edge is the constraint, made by Field in the manifest of Of, that Before runs before
// After.
type Edge struct {
	Before, After subject.Plugin
	Of            subject.Plugin
	Field         string // "dependencies", "run_after" or "run_before"
}

func (e Edge) String() string {
	other := e.Before
	if e.Of == e.Before {
		other = e.After
	}
	return fmt.Sprintf("%s of %s names %s", e.Field, e.Of, other)
}

// Error describes the cycle, with the field that makes each of its edges.
func (e *CycleError) Error() string {
	var names, why []string
	for _, edge := range e.Edges {
		names = append(names, string(edge.Before))
		why = append(why, edge.String())
	}
	names = append(names, string(e.Edges[0].Before))
	return fmt.Sprintf("the order has the cycle %s (%s)", strings.Join(names, " -> "), strings.Join(why, ", "))
}

// Order returns the order in which the plugins are asked. Dependencies, run_after and
// run_before form one graph, without edges to plugins that are not among the manifests.
// Where the graph leaves a choice, the higher priority comes first, then the name that
// sorts first. The result does not depend on the order of the manifests.
//
// The error is a [*CycleError], or names a duplicate plugin.
func Order(manifests []plugin.Manifest) ([]subject.Plugin, error) {
	g, err := newGraph(manifests)
	if err != nil {
		return nil, err
	}
	order := g.sort()
	if len(order) < len(manifests) {
		return nil, &CycleError{g.cycle(order)}
	}
	out := make([]subject.Plugin, len(order))
	for i, n := range order {
		out[i] = n.name()
	}
	return out, nil
}

// Position is a plugin's position in the order, with the reasons for it.
type Position struct {
	Plugin subject.Plugin
	// Why lists the edges that put the plugin after others, and the reason why it follows
	// its predecessor if no edge requires that. It is empty for a first plugin without
	// edges.
	Why []string
}

// Explain is like [Order] but also returns the reasons.
func Explain(manifests []plugin.Manifest) ([]Position, error) {
	if _, err := Order(manifests); err != nil {
		return nil, err
	}
	g, _ := newGraph(manifests) // cannot fail: Order has built the same graph
	order := g.sort()
	out := make([]Position, len(order))
	for i, n := range order {
		out[i] = Position{Plugin: n.name()}
		ordered := false // an edge puts it after its predecessor
		for _, e := range n.in {
			out[i].Why = append(out[i].Why, fmt.Sprintf("after %s: %s", e.Before, e))
			ordered = ordered || i > 0 && e.Before == order[i-1].name()
		}
		if i > 0 && !ordered {
			out[i].Why = append(out[i].Why, tie(order[i-1], n))
		}
	}
	return out, nil
}

// tie returns the reason why a comes right before b although no edge requires that: both
// could run next when a was chosen.
func tie(a, b *node) string {
	if a.m.Priority > b.m.Priority {
		return fmt.Sprintf("after %s: its priority is higher, %d > %d", a.name(), a.m.Priority, b.m.Priority)
	}
	return fmt.Sprintf("after %s: the priority is the same, %d, and its name comes first", a.name(), b.m.Priority)
}

type node struct {
	m    plugin.Manifest
	in   []Edge // sorted
	out  []*node
	left int // edges from plugins that are not placed yet
}

func (n *node) name() subject.Plugin { return n.m.Name }

type graph struct {
	nodes  []*node // by name
	byName map[subject.Plugin]*node
}

func newGraph(manifests []plugin.Manifest) (*graph, error) {
	g := &graph{byName: make(map[subject.Plugin]*node, len(manifests))}
	for _, m := range manifests {
		if g.byName[m.Name] != nil {
			return nil, fmt.Errorf("duplicate plugin %q", m.Name)
		}
		n := &node{m: m}
		g.byName[m.Name] = n
		g.nodes = append(g.nodes, n)
	}
	slices.SortFunc(g.nodes, func(a, b *node) int { return cmp.Compare(a.name(), b.name()) })
	for _, n := range g.nodes {
		for _, d := range n.m.Dependencies {
			g.edge(Edge{d, n.name(), n.name(), "dependencies"})
		}
		for _, d := range n.m.RunAfter {
			g.edge(Edge{d, n.name(), n.name(), "run_after"})
		}
		for _, d := range n.m.RunBefore {
			g.edge(Edge{n.name(), d, n.name(), "run_before"})
		}
	}
	return g, nil
}

// edge adds an edge if both its plugins exist. Several edges between two plugins do no
// harm.
func (g *graph) edge(e Edge) {
	from, to := g.byName[e.Before], g.byName[e.After]
	if from == nil || to == nil {
		return
	}
	to.in = append(to.in, e)
	to.left++
	from.out = append(from.out, to)
}

// sort implements Kahn's algorithm. It omits plugins in a cycle, or after one.
func (g *graph) sort() []*node {
	var free freeNodes
	for _, n := range g.nodes {
		if n.left == 0 {
			free = append(free, n)
		}
	}
	heap.Init(&free)
	order := make([]*node, 0, len(g.nodes))
	for free.Len() > 0 {
		n := heap.Pop(&free).(*node)
		order = append(order, n)
		for _, after := range n.out {
			if after.left--; after.left == 0 {
				heap.Push(&free, after)
			}
		}
	}
	return order
}

// cycle finds a cycle among the plugins that could not be placed: each of them has
// another one before it.
func (g *graph) cycle(placed []*node) []Edge {
	done := map[subject.Plugin]bool{}
	for _, n := range placed {
		done[n.name()] = true
	}
	at := g.nodes[slices.IndexFunc(g.nodes, func(n *node) bool { return !done[n.name()] })]
	var back []Edge // in reverse, because the walk goes against the edges
	seen := map[subject.Plugin]int{}
	for {
		if i, again := seen[at.name()]; again {
			back = back[i:]
			break
		}
		seen[at.name()] = len(back)
		e := at.in[slices.IndexFunc(at.in, func(e Edge) bool { return !done[e.Before] })]
		back = append(back, e)
		at = g.byName[e.Before]
	}
	slices.Reverse(back)
	least := 0
	for i, e := range back {
		if e.Before < back[least].Before {
			least = i
		}
	}
	return append(slices.Clone(back[least:]), back[:least]...)
}

// freeNodes is a heap of plugins that may run now.
type freeNodes []*node

func (f freeNodes) Len() int { return len(f) }
func (f freeNodes) Less(i, j int) bool {
	if f[i].m.Priority != f[j].m.Priority {
		return f[i].m.Priority > f[j].m.Priority
	}
	return f[i].name() < f[j].name()
}
func (f freeNodes) Swap(i, j int) { f[i], f[j] = f[j], f[i] }
func (f *freeNodes) Push(x any)   { *f = append(*f, x.(*node)) }
func (f *freeNodes) Pop() any {
	old := *f
	n := old[len(old)-1]
	*f = old[:len(old)-1]
	return n
}
