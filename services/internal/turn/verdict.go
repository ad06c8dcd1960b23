package turn

import (
	"slices"
	"strings"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/hook"
)

// Part is what hooks are asked about: taking up an input, a plan, a call, or the end of a
// turn. The zero value is none that the log names.
type Part struct {
	Turn string // of the input, even if it never had one
	ID   string // of the plan or call; "sense" or "end"
}

// Sense is the taking up of the input at the sequence.
func Sense(sequence uint64) Part { return Part{event.TurnID(sequence), "sense"} }

// Ending is the end of the input at the sequence.
func Ending(sequence uint64) Part { return Part{event.TurnID(sequence), "end"} }

// Work is a plan or a call.
func Work(id string) Part {
	of, _, _ := strings.Cut(id, "-")
	return Part{of, id}
}

// PartsOf returns what each verdict of a commit is about. The log only names calls. A commit
// may end one turn and begin another, and then the verdicts of one point are in the order
// of the events.
func PartsOf(c event.Commit) []Part {
	out := make([]Part, len(c.Header.Hooks))
	var begun, failed []Part
	var recorded Part
	planDenied := slices.ContainsFunc(c.Header.Hooks, func(v hook.Verdict) bool {
		return v.Point == hook.AfterPlan && v.Verb == hook.DenyVerb
	})
	for _, e := range c.Events {
		_ = event.Visitor{ // no verdict is about what cannot be read
			PlanRequested: func(p event.PlanRequested) {
				if p.Attempts <= 1 {
					begun = append(begun, Work(p.Plan))
				}
			},
			TurnFailed: func(p event.TurnFailed) {
				if e.Turn == "" && p.Sequence != c.Header.Trigger.Sequence {
					return // of an input that waited: no plugin is asked
				}
				failed = append(failed, Ending(p.Sequence))
				if p.Code != event.FailDenied || e.Turn == "" {
					return
				}
				if !planDenied {
					begun = append(begun, Ending(p.Sequence))
				}
				planDenied = false // the first one was the plan's
			},
			Recorded: func(p event.Recorded) {
				if p.Command == "" {
					recorded = Ending(p.Sequence)
				}
			},
		}.Visit(e)
	}
	plans, errs := rounds{of: begun}, rounds{of: failed}
	for i, v := range c.Header.Hooks {
		switch v.Point {
		case hook.BeforeSense, hook.AfterSense:
			out[i] = Sense(c.Header.Trigger.Sequence)
		case hook.BeforePlan:
			out[i] = plans.next(v)
		case hook.AfterPlan:
			out[i] = Work(c.Header.Trigger.Call)
		case hook.BeforeAct, hook.AfterAct:
			out[i] = Work(v.Step)
		case hook.BeforeReflect, hook.AfterReflect:
			out[i] = recorded
		case hook.OnError:
			if out[i] = Work(v.Step); v.Step == "" { // not about a call that failed
				out[i] = errs.next(v)
			}
		}
	}
	return out
}

// rounds assigns parts to verdicts of one point, moving on to the next part when a plugin
// is asked again.
type rounds struct {
	of   []Part
	seen map[string]bool
}

func (r *rounds) next(v hook.Verdict) Part {
	if r.seen[string(v.Plugin)] && len(r.of) > 1 {
		r.of, r.seen = r.of[1:], nil
	}
	if r.seen == nil {
		r.seen = map[string]bool{}
	}
	r.seen[string(v.Plugin)] = true
	if len(r.of) == 0 {
		return Part{}
	}
	return r.of[0]
}
