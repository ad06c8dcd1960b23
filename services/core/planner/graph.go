package planner

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// The reasons for refusing a plan. [Check] joins all that it finds.
var (
	ErrDuplicateID       = errors.New("duplicate step id")
	ErrUnknownDependency = errors.New("unknown dependency")
	ErrSelfDependency    = errors.New("step depends on itself")
	ErrCycle             = errors.New("cyclic dependency")
	ErrEmptyPlan         = errors.New("plan has no steps")
	ErrTooManySteps      = errors.New("plan has too many steps")
)

// MaxSteps is the largest number of steps in a plan.
const MaxSteps = 64

// Node is one step and its dependencies.
type Node struct {
	ID        string
	DependsOn []string
}

// Check verifies that the steps form a directed acyclic graph. The error joins all
// reasons found; test for them with errors.Is.
func Check(nodes []Node) error {
	if len(nodes) > MaxSteps {
		return fmt.Errorf("%w: %d, at most %d", ErrTooManySteps, len(nodes), MaxSteps)
	}
	var errs []error
	index := make(map[string]int, len(nodes))
	for i, n := range nodes {
		if _, taken := index[n.ID]; taken {
			errs = append(errs, fmt.Errorf("%w: %q", ErrDuplicateID, n.ID))
			continue
		}
		index[n.ID] = i
	}
	for _, n := range nodes {
		for _, d := range n.DependsOn {
			switch _, known := index[d]; {
			case d == n.ID:
				errs = append(errs, fmt.Errorf("%w: %q", ErrSelfDependency, n.ID))
			case !known:
				errs = append(errs, fmt.Errorf("%w: step %q depends on %q", ErrUnknownDependency, n.ID, d))
			}
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	if rest := unordered(nodes, index); len(rest) > 0 {
		return fmt.Errorf("%w: among steps %s", ErrCycle, strings.Join(rest, ", "))
	}
	return nil
}

// unordered returns the steps that Kahn's algorithm cannot order.
func unordered(nodes []Node, index map[string]int) []string {
	indegree := make([]int, len(nodes))
	dependants := make([][]int, len(nodes))
	for i, n := range nodes {
		deps := slices.Clone(n.DependsOn)
		slices.Sort(deps)
		for _, d := range slices.Compact(deps) {
			indegree[i]++
			dependants[index[d]] = append(dependants[index[d]], i)
		}
	}
	var ready []int
	for i, n := range indegree {
		if n == 0 {
			ready = append(ready, i)
		}
	}
	placed := 0
	for ; len(ready) > 0; placed++ {
		i := ready[len(ready)-1]
		ready = ready[:len(ready)-1]
		for _, j := range dependants[i] {
			if indegree[j]--; indegree[j] == 0 {
				ready = append(ready, j)
			}
		}
	}
	if placed == len(nodes) {
		return nil
	}
	var rest []string
	for i, n := range indegree {
		if n > 0 {
			rest = append(rest, fmt.Sprintf("%q", nodes[i].ID))
		}
	}
	return rest
}

// Reasons splits a joined error into its lines, for a model or a person.
func Reasons(err error) []string {
	if err == nil {
		return nil
	}
	return strings.Split(err.Error(), "\n")
}
