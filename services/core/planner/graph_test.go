package planner_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"skandha.dev/services/core/planner"
)

func TestCheckNamesEveryReason(t *testing.T) {
	n := func(id string, deps ...string) planner.Node { return planner.Node{ID: id, DependsOn: deps} }
	for _, c := range []struct {
		name  string
		nodes []planner.Node
		want  []error
	}{
		{"nothing", nil, nil},
		{"one step", []planner.Node{n("a")}, nil},
		{"in any order", []planner.Node{n("c", "b", "a"), n("b", "a"), n("a")}, nil},
		{"a diamond", []planner.Node{n("a"), n("b", "a"), n("c", "a"), n("d", "b", "c")}, nil},
		{"a dependency named twice", []planner.Node{n("a"), n("b", "a", "a")}, nil},
		{"an empty id is an id", []planner.Node{n(""), n("b", "")}, nil},
		{"unknown", []planner.Node{n("a", "z")}, []error{planner.ErrUnknownDependency}},
		{"itself", []planner.Node{n("a", "a")}, []error{planner.ErrSelfDependency}},
		{"a cycle of two", []planner.Node{n("a", "b"), n("b", "a")}, []error{planner.ErrCycle}},
		{
			"a cycle beside sound steps",
			[]planner.Node{n("x"), n("a", "c", "x"), n("b", "a"), n("c", "b"), n("y", "c")},
			[]error{planner.ErrCycle},
		},
		{"twice the same id", []planner.Node{n("a"), n("a")}, []error{planner.ErrDuplicateID}},
		{
			"all at once",
			[]planner.Node{n("a", "a", "z"), n("a")},
			[]error{planner.ErrSelfDependency, planner.ErrUnknownDependency, planner.ErrDuplicateID},
		},
		{"too many", make([]planner.Node, planner.MaxSteps+1), []error{planner.ErrTooManySteps}},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := planner.Check(c.nodes)
			for _, e := range []error{
				planner.ErrUnknownDependency, planner.ErrSelfDependency, planner.ErrCycle, planner.ErrDuplicateID,
				planner.ErrTooManySteps,
			} {
				if errors.Is(err, e) != slices.Contains(c.want, e) {
					t.Errorf("%v: got %v", e, err)
				}
			}
			if len(planner.Reasons(err)) < len(c.want) {
				t.Errorf("%d reasons of %d: %v", len(planner.Reasons(err)), len(c.want), err)
			}
		})
	}
}

// Random graphs against brute force: an order exists if and only if removing steps
// without dependencies, one at a time, finds one.
func TestCheckAgreesWithBruteForce(t *testing.T) {
	r := rand.New(rand.NewPCG(42, 42))
	verdicts := map[bool]int{}
	for range 20_000 {
		nodes := randomGraph(r)
		err := planner.Check(nodes)
		ok := orderable(nodes)
		verdicts[ok]++
		if (err == nil) != ok {
			t.Fatalf("%v: %v, brute force says %t", nodes, err, ok)
		}
		if ok {
			continue
		}
		for _, kind := range []struct {
			err error
			is  bool
		}{
			{planner.ErrSelfDependency, anyEdge(nodes, func(n planner.Node, d string) bool { return d == n.ID })},
			{planner.ErrUnknownDependency, anyEdge(nodes, func(_ planner.Node, d string) bool { return !known(nodes, d) })},
		} {
			if errors.Is(err, kind.err) != kind.is {
				t.Fatalf("%v: %v, and %v: %t", nodes, err, kind.err, kind.is)
			}
		}
	}
	if verdicts[true] < 2000 || verdicts[false] < 2000 {
		t.Fatalf("the graphs are too similar: %v", verdicts)
	}
}

// The steps reported for a cycle are exactly those that cannot be ordered.
func TestACycleIsToldByItsSteps(t *testing.T) {
	err := planner.Check([]planner.Node{
		{ID: "free"},
		{ID: "a", DependsOn: []string{"b", "free"}},
		{ID: "b", DependsOn: []string{"a"}},
		{ID: "behind", DependsOn: []string{"a"}},
	})
	if err == nil || !strings.HasSuffix(err.Error(), `among steps "a", "b", "behind"`) {
		t.Fatal(err)
	}
}

func randomGraph(r *rand.Rand) []planner.Node {
	nodes := make([]planner.Node, 1+r.IntN(8))
	for i := range nodes {
		nodes[i].ID = fmt.Sprint(i)
		for range r.IntN(3) {
			d := r.IntN(len(nodes))
			if r.IntN(4) > 0 && i > 0 {
				d = r.IntN(i) // mostly valid
			}
			if r.IntN(60) == 0 {
				d = 99
			}
			nodes[i].DependsOn = append(nodes[i].DependsOn, fmt.Sprint(d))
		}
	}
	r.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
	return nodes
}

func orderable(nodes []planner.Node) bool {
	done := map[string]bool{}
	for range nodes {
		for _, n := range nodes {
			ready := !done[n.ID]
			for _, d := range n.DependsOn {
				ready = ready && done[d]
			}
			if ready {
				done[n.ID] = true
			}
		}
	}
	return len(done) == len(nodes)
}

func anyEdge(nodes []planner.Node, f func(planner.Node, string) bool) bool {
	for _, n := range nodes {
		for _, d := range n.DependsOn {
			if f(n, d) {
				return true
			}
		}
	}
	return false
}

func known(nodes []planner.Node, id string) bool {
	for _, n := range nodes {
		if n.ID == id {
			return true
		}
	}
	return false
}
