package model

import (
	"hash/maphash"
	"slices"
)

// Model is the protocol in one configuration. It is not safe for concurrent
// use; explorations of different models are independent.
type Model struct {
	cfg      Config
	overflow int // futures ended by a full log
}

// New makes the model of a configuration.
func New(cfg Config) *Model { return &Model{cfg: cfg} }

func (m *Model) broken(rule Mutation) bool { return m.cfg.Mutation == rule }
func (m *Model) calls() uint8              { return m.cfg.Calls }

// caller returns the input whose turn has the calls.
func (m *Model) caller() uint8 {
	if m.cfg.Second {
		return 2
	}
	return 1
}

// Outcome is what an exploration found.
type Outcome string

// The outcomes of an exploration.
const (
	OK        Outcome = "OK"        // exhausted: no violation, no wedge
	Capped    Outcome = "CAPPED"    // no violation, but MaxStates was too small to tell
	Violation Outcome = "VIOLATION" // a state that violates an invariant
	Wedge     Outcome = "WEDGE"     // a state from which not all inputs can end
)

// Report is the result of an exploration.
type Report struct {
	Outcome  Outcome
	Reason   string // Violation: the violated invariant
	States   int
	Edges    int
	Goals    int      // states in which all inputs have ended
	Overflow int      // futures ended by a full log
	Trace    []string // Violation, Wedge: a shortest path to the state
	Last     string   // Violation, Wedge: the state itself
}

// fingerprint identifies a state in the index of seen states. Two states with the same
// fingerprint would be treated as one; with 128 bits and 10^8 states, the probability is
// below 10^-22.
type fingerprint [2]uint64

// explorer is a breadth-first search. It numbers states as it finds them, and drops
// them once their successors are known.
type explorer struct {
	*Model
	seeds   [2]maphash.Seed
	index   map[fingerprint]int32 // state -> its number
	waiting list[State]
	parent  list[int32]
	first   list[uint32] // state -> its first edge in targets
	targets list[int32]
	goal    []bool
}

// Explore visits every state within the budgets and checks it. At the end it checks
// whether each state can still reach the goal.
func (m *Model) Explore() Report {
	m.overflow = 0
	x := explorer{
		Model: m,
		seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()},
		index: map[fingerprint]int32{},
	}
	x.add(State{Left: m.cfg.Budget}, -1)
	var steps []step
	capped := false
	for at := 0; at < x.waiting.len(); at++ {
		s := x.waiting.at(at)
		f := m.fold(s, s.Len)
		if reason := m.check(s, &f); reason != "" {
			return x.failed(Violation, reason, int32(at))
		}
		if capped = capped || x.waiting.len() >= m.cfg.MaxStates; !capped {
			x.goal = append(x.goal, m.reached(s, &f))
			x.first.push(uint32(x.targets.len()))
			steps = m.next(s, f, steps[:0])
			for i := range steps {
				x.targets.push(x.add(steps[i].next, int32(at)))
			}
		}
		x.waiting.release(at)
	}
	if capped {
		return Report{Outcome: Capped, States: x.waiting.len(), Overflow: m.overflow}
	}
	x.first.push(uint32(x.targets.len()))
	return x.finish()
}

// add returns the number of a state, and adds the state if it is new.
func (x *explorer) add(s State, from int32) int32 {
	key := x.fingerprint(&s)
	number, known := x.index[key]
	if !known {
		number = int32(x.waiting.len())
		x.index[key] = number
		x.waiting.push(s)
		x.parent.push(from)
	}
	return number
}

func (x *explorer) fingerprint(s *State) fingerprint {
	return fingerprint{maphash.Comparable(x.seeds[0], *s), maphash.Comparable(x.seeds[1], *s)}
}

// finish looks for states that cannot reach the goal. Most edges lead to later states,
// so a few backward sweeps suffice.
func (x *explorer) finish() Report {
	goals := 0
	for _, reached := range x.goal {
		if reached {
			goals++
		}
	}
	for changed := true; changed; {
		changed = false
		for s := len(x.goal) - 1; s >= 0; s-- {
			if !x.goal[s] && x.leadsToGoal(s) {
				x.goal[s], changed = true, true
			}
		}
	}
	if stuck := slices.Index(x.goal, false); stuck >= 0 {
		return x.failed(Wedge, "", int32(stuck))
	}
	return Report{
		Outcome: OK, States: x.waiting.len(), Edges: x.targets.len(), Goals: goals, Overflow: x.overflow,
	}
}

func (x *explorer) leadsToGoal(s int) bool {
	for e := *x.first.at(s); e < *x.first.at(s + 1); e++ {
		if x.goal[*x.targets.at(int(e))] {
			return true
		}
	}
	return false
}

// failed replays the path to a state for its trace.
func (x *explorer) failed(o Outcome, reason string, number int32) Report {
	r := Report{Outcome: o, Reason: reason, States: x.waiting.len(), Edges: x.targets.len(), Overflow: x.overflow}
	var way []int32
	for at := number; at > 0; at = *x.parent.at(int(at)) {
		way = append(way, at)
	}
	s := State{Left: x.cfg.Budget}
	for _, to := range slices.Backward(way) {
		for _, t := range x.next(&s, x.fold(&s, s.Len), nil) {
			if x.index[x.fingerprint(&t.next)] == to {
				r.Trace = append(r.Trace, t.label.String())
				s = t.next
				break
			}
		}
	}
	r.Last = s.describe(x.fold(&s, s.Len))
	return r
}

// list grows without copying, and can release its front.
type list[T any] struct {
	chunks [][]T
	n      int
}

const chunk = 1 << 12

func (l *list[T]) len() int { return l.n }

func (l *list[T]) at(i int) *T { return &l.chunks[i/chunk][i%chunk] }

func (l *list[T]) push(v T) {
	if l.n%chunk == 0 {
		l.chunks = append(l.chunks, make([]T, 0, chunk))
	}
	last := &l.chunks[len(l.chunks)-1]
	*last = append(*last, v)
	l.n++
}

// release frees the elements up to i. They must not be read again.
func (l *list[T]) release(i int) {
	if i%chunk == chunk-1 {
		l.chunks[i/chunk] = nil
	}
}
