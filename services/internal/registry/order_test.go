package registry_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/registry"
)

func m(name string, change ...func(*plugin.Manifest)) plugin.Manifest {
	out := plugin.Manifest{Name: subject.Plugin(name), Version: "1.0.0"}
	for _, f := range change {
		f(&out)
	}
	return out
}

func names(s ...string) []subject.Plugin {
	out := make([]subject.Plugin, len(s))
	for i, n := range s {
		out[i] = subject.Plugin(n)
	}
	return out
}

func needs(s ...string) func(*plugin.Manifest) {
	return func(m *plugin.Manifest) { m.Dependencies = names(s...) }
}

func after(s ...string) func(*plugin.Manifest) {
	return func(m *plugin.Manifest) { m.RunAfter = names(s...) }
}

func before(s ...string) func(*plugin.Manifest) {
	return func(m *plugin.Manifest) { m.RunBefore = names(s...) }
}

func priority(n int32) func(*plugin.Manifest) { return func(m *plugin.Manifest) { m.Priority = n } }

func TestOrder(t *testing.T) {
	for about, c := range map[string]struct {
		in   []plugin.Manifest
		want string
	}{
		"nothing":                           {nil, ""},
		"names, where nothing else is said": {[]plugin.Manifest{m("c"), m("a"), m("b")}, "a b c"},
		"higher priority first":             {[]plugin.Manifest{m("a"), m("b", priority(1)), m("c", priority(-1))}, "b a c"},
		"a dependency beats priority":       {[]plugin.Manifest{m("a", priority(9), needs("b")), m("b")}, "b a"},
		"run_after beats priority":          {[]plugin.Manifest{m("a", priority(9), after("b")), m("b")}, "b a"},
		"run_before beats priority":         {[]plugin.Manifest{m("a", priority(9)), m("b", before("a"))}, "b a"},
		"who is absent makes no edge":       {[]plugin.Manifest{m("b", after("x"), before("y"), needs("z")), m("a")}, "a b"},
		"priority among those that are free": {
			[]plugin.Manifest{m("a", needs("d")), m("b", priority(5), needs("d")), m("c", priority(1)), m("d")}, "c d b a",
		},
		"the same edge twice": {[]plugin.Manifest{m("a", needs("b"), after("b")), m("b", before("a"))}, "b a"},
	} {
		t.Run(about, func(t *testing.T) {
			got, err := registry.Order(c.in)
			if err != nil || strings.Trim(fmt.Sprint(got), "[]") != c.want {
				t.Fatalf("got %v %v, want %s", got, err, c.want)
			}
		})
	}
}

func TestACycleIsNamedWithWhatMakesIt(t *testing.T) {
	for _, c := range []struct {
		in   []plugin.Manifest
		want string
	}{
		{
			[]plugin.Manifest{m("b", needs("a")), m("a", after("b"))},
			"the order has the cycle a -> b -> a (dependencies of b names a, run_after of a names b)",
		},
		{
			[]plugin.Manifest{m("c", before("a")), m("x", after("c")), m("b", before("c")), m("a", before("b")), m("0")},
			"the order has the cycle a -> b -> c -> a (run_before of a names b, run_before of b names c, " +
				"run_before of c names a)",
		},
		{[]plugin.Manifest{m("a", after("a"))}, "the order has the cycle a -> a (run_after of a names a)"},
	} {
		for range 5 {
			rand.Shuffle(len(c.in), func(i, j int) { c.in[i], c.in[j] = c.in[j], c.in[i] })
			order, err := registry.Order(c.in)
			var cycle *registry.CycleError
			if !errors.As(err, &cycle) || err.Error() != c.want || order != nil {
				t.Fatalf("got %v %v, want %s", order, err, c.want)
			}
		}
	}
	if _, err := registry.Order([]plugin.Manifest{m("a"), m("a")}); err == nil ||
		!strings.Contains(err.Error(), `duplicate plugin "a"`) {
		t.Errorf("got %v", err)
	}
}

// random makes 30 plugins whose constraints agree with a hidden order.
func random(r *rand.Rand) []plugin.Manifest {
	const n = 30
	hidden := r.Perm(n)
	list := make([]plugin.Manifest, n)
	for i := range list {
		list[i] = m(fmt.Sprintf("p%02d", i), priority(int32(r.IntN(5)-2)))
	}
	for range r.IntN(60) {
		i, j := r.IntN(n), r.IntN(n)
		switch first, second := &list[i], &list[j]; {
		case hidden[i] >= hidden[j]:
		case r.IntN(3) == 0:
			second.Dependencies = append(second.Dependencies, first.Name)
		case r.IntN(2) == 0:
			second.RunAfter = append(second.RunAfter, first.Name)
		default:
			first.RunBefore = append(first.RunBefore, second.Name)
		}
	}
	return list
}

func TestEveryEdgeHoldsInAThousandGraphs(t *testing.T) {
	for seed := range uint64(1000) {
		r := rand.New(rand.NewPCG(seed, 0)) // repeatable on purpose
		list := random(r)
		order, err := registry.Order(list)
		if err != nil || len(order) != len(list) {
			t.Fatalf("seed %d: %d of %d, %v", seed, len(order), len(list), err)
		}
		place := map[subject.Plugin]int{}
		for i, p := range order {
			place[p] = i
		}
		for _, one := range list {
			for _, p := range slices.Concat(one.Dependencies, one.RunAfter) {
				if place[p] >= place[one.Name] {
					t.Fatalf("seed %d: %s runs at %d, not after %s at %d", seed, one.Name, place[one.Name], p, place[p])
				}
			}
			for _, p := range one.RunBefore {
				if place[p] <= place[one.Name] {
					t.Fatalf("seed %d: %s runs at %d, not before %s at %d", seed, one.Name, place[one.Name], p, place[p])
				}
			}
		}
		for range 3 {
			r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
			if again, err := registry.Order(list); err != nil || !slices.Equal(again, order) {
				t.Fatalf("seed %d: %v, then %v (%v)", seed, order, again, err)
			}
		}
		why, err := registry.Explain(list)
		if err != nil || len(why) != len(order) {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for i, p := range why {
			if p.Plugin != order[i] || i > 0 && !slices.ContainsFunc(p.Why, func(s string) bool {
				return strings.HasPrefix(s, "after "+string(order[i-1])+":")
			}) {
				t.Fatalf("seed %d: %s at %d is explained by %q", seed, order[i], i, p.Why)
			}
		}
	}
}

// A cycle closed on purpose is always found, and its edges are edges.
func TestEveryCycleIsFound(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1)) // repeatable on purpose
		list := random(r)
		order, err := registry.Order(list)
		if err != nil {
			t.Fatal(err)
		}
		first, last := order[0], order[len(order)-1]
		for i := range list {
			switch list[i].Name {
			case first:
				list[i].RunAfter = append(list[i].RunAfter, last)
			case last:
				list[i].Dependencies = append(list[i].Dependencies, first)
			}
		}
		_, err = registry.Order(list)
		var cycle *registry.CycleError
		if !errors.As(err, &cycle) {
			t.Fatalf("seed %d: got %v", seed, err)
		}
		for i, e := range cycle.Edges {
			if e.After != cycle.Edges[(i+1)%len(cycle.Edges)].Before {
				t.Fatalf("seed %d: %v is no cycle", seed, cycle)
			}
		}
	}
}

func ExampleExplain() {
	why, err := registry.Explain([]plugin.Manifest{
		m("audit", needs("policy")), m("policy", priority(10)), m("log", priority(5)), m("trace", after("log")),
	})
	if err != nil {
		panic(err)
	}
	for _, p := range why {
		fmt.Println(strings.TrimSpace(string(p.Plugin) + " " + strings.Join(p.Why, "; ")))
	}
	// Output:
	// policy
	// log after policy: its priority is higher, 10 > 5
	// audit after policy: dependencies of audit names policy; after log: its priority is higher, 5 > 0
	// trace after log: run_after of trace names log; after audit: the priority is the same, 0, and its name comes first
}
