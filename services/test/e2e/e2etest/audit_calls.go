package e2etest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

func (a *audit) planned(s *sessionAudit, f fields) string {
	if s.turn == 0 {
		return "the model answers outside a turn"
	}
	if len(f.Steps) > 0 {
		for id, k := range a.calls {
			if k.session == s.name && k.turn == s.turn && len(k.results) == 0 {
				return fmt.Sprintf("new calls while %s has no result", id)
			}
		}
	}
	for _, st := range f.Steps {
		if a.calls[st.Call] != nil {
			return fmt.Sprintf("call %s was requested before", st.Call)
		}
		a.calls[st.Call] = &callAudit{step: st, session: s.name, turn: s.turn}
	}
	return ""
}

// open finds a call of the open turn that has no result.
func (a *audit) open(s *sessionAudit, id string) (*callAudit, string) {
	k := a.calls[id]
	switch {
	case k == nil || k.session != s.name:
		return nil, fmt.Sprintf("nobody requested call %q", id)
	case k.turn != s.turn:
		return nil, fmt.Sprintf("call %s belongs to the turn of %d, open is %d", id, k.turn, s.turn)
	case len(k.results) > 0:
		return nil, fmt.Sprintf("call %s has its result already: %s", id, k.results[0])
	}
	return k, ""
}

// assigned checks promises 2 and 3 for an attempt at a call.
func (a *audit) assigned(s *sessionAudit, c *Commit, f fields) string {
	k, why := a.open(s, f.Call)
	if why != "" {
		return why
	}
	if why := a.fresh(f.Attempt, c.Seq); why != "" {
		return why
	}
	for _, dep := range k.DependsOn {
		if d := a.calls[dep]; d == nil || len(d.results) == 0 || d.results[0] != "success" {
			return fmt.Sprintf("call %s begins before %s, on which it depends, has succeeded", f.Call, dep)
		}
	}
	if f.Tool != k.Tool {
		return fmt.Sprintf("call %s is of %s, not %s", f.Call, k.Tool, f.Tool)
	}
	if k.Tool == ToolRisky && k.outcome != "approved" && (k.asked != nil || !s.granted[f.Hash]) {
		return fmt.Sprintf("call %s of %s is given out without an approval", f.Call, k.Tool)
	}
	if k.asked != nil {
		if k.outcome != "approved" {
			return fmt.Sprintf("call %s is given out although the answer to its request was %q", f.Call, k.outcome)
		}
		if k.asked.Hash != f.Hash || !sameJSON(k.asked.Args, f.Args) {
			return fmt.Sprintf("call %s runs with %s, shown was %s", f.Call, f.Args, k.asked.Args)
		}
	}
	k.attempts = append(k.attempts, Assigned{c.Seq, f.Attempt, f.Runner})
	return ""
}

func sameJSON(a, b json.RawMessage) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && fmt.Sprint(x) == fmt.Sprint(y)
}

func (a *audit) asked(s *sessionAudit, c *Commit, f fields) string {
	k, why := a.open(s, f.ConfirmationID)
	if why != "" {
		return why
	}
	if k.asked != nil {
		return fmt.Sprintf("a person is asked twice about %s", f.ConfirmationID)
	}
	k.asked, k.askedAt = &f, c.Seq
	return ""
}

// confirmed checks promise 3: who said so, when, and about what.
func (a *audit) confirmed(s *sessionAudit, c *Commit, f fields) string {
	k, why := a.open(s, f.Call)
	if why != "" {
		return why
	}
	if k.asked == nil || k.outcome != "" {
		return fmt.Sprintf("call %s does not wait for an answer (the last was %q)", f.Call, k.outcome)
	}
	k.outcome = f.Outcome
	cause := a.causes[c.Trigger.Sequence]
	var said struct {
		ID             string          `json:"id"`
		ConfirmationID string          `json:"confirmation_id"`
		Hash           string          `json:"hash"`
		Approved       bool            `json:"approved"`
		Always         json.RawMessage `json:"always"`
	}
	if err := json.Unmarshal(cause.Data, &said); err != nil {
		return "what was said cannot be read: " + err.Error()
	}
	if cause.Session() != s.name || cause.Seq <= k.askedAt {
		return fmt.Sprintf("cause %d cannot mean the request in commit %d", cause.Seq, k.askedAt)
	}
	if f.Outcome == "expired" {
		switch {
		case cause.Kind() != "timer" || cause.Writer() != "core" || said.ID != f.Call:
			return fmt.Sprintf("expired, but cause %d is no timer of %s", cause.Seq, f.Call)
		case cause.Time.Before(k.asked.ExpiresAt):
			return fmt.Sprintf("expired %v early", k.asked.ExpiresAt.Sub(cause.Time))
		}
		return ""
	}
	switch {
	case cause.Kind() != "confirmation" || said.ConfirmationID != f.Call || f.By != cause.Writer():
		return fmt.Sprintf("cause %d by %s is no answer about %s", cause.Seq, cause.Writer(), f.Call)
	case said.Hash != k.asked.Hash:
		return "the answer is about other arguments than were shown"
	case said.Approved != (f.Outcome == "approved"):
		return fmt.Sprintf("%s, but the person said approved=%v", f.Outcome, said.Approved)
	case !cause.Time.Before(k.asked.ExpiresAt):
		return "the answer counts although the request had expired"
	case (len(f.Always) > 0 || len(said.Always) > 0) && !sameJSON(f.Always, said.Always):
		return fmt.Sprintf("it grants %s, and the person said %s", f.Always, said.Always)
	}
	return s.grant(k, f.Always)
}

// grant notes what is approved for the session: of the tools here, which have no
// scope, exactly the call that was shown.
func (s *sessionAudit) grant(k *callAudit, always json.RawMessage) string {
	if len(always) == 0 {
		return ""
	}
	var g struct {
		Tool string            `json:"tool"`
		Hash string            `json:"hash"`
		Args map[string]string `json:"args"`
	}
	if err := json.Unmarshal(always, &g); err != nil || g.Tool != k.Tool || g.Hash != k.asked.Hash || g.Args != nil {
		return fmt.Sprintf("it grants %s, and shown was %s %s", always, k.Tool, k.asked.Args)
	}
	s.granted[g.Hash] = true
	return ""
}

func (a *audit) completed(s *sessionAudit, f fields) string {
	k, why := a.open(s, f.Call)
	if why != "" {
		return why
	}
	k.results = append(k.results, f.Result.outcome())
	if len(k.attempts) > 0 {
		return ""
	}
	switch out := k.results[0]; out {
	case "tool_failed", "timeout", "outcome_unknown", "success":
		if k.Tool != "plan:execute" && k.Tool != "tools:find" { // core itself runs them
			return fmt.Sprintf("call %s ended as %s and was never given out", f.Call, out)
		}
	}
	return ""
}

// results checks that every requested call has its one result.
func (a *audit) results() {
	for id, k := range a.calls {
		if len(k.results) != 1 {
			a.fault("%s: call %s has %d results: %v", k.session, id, len(k.results), k.results)
		}
	}
}

// didNotRun are the results which say that the call certainly had no effect.
var didNotRun = []string{
	"cancelled", "not_run", "skipped", "denied", "confirmation_expired",
	"invalid_arguments", "unknown_tool", "invalid_plan",
}

// effects checks promise 2 against what the tools did.
func (a *audit) effects(effects []Effect) {
	did := map[string][]Effect{}
	for _, e := range effects {
		did[e.Call] = append(did[e.Call], e)
		k := a.calls[e.Call]
		if k == nil {
			a.fault("an effect of call %s, which nobody requested", e.Call)
			continue
		}
		i := slices.IndexFunc(k.attempts, func(at Assigned) bool { return at.Attempt == e.Attempt })
		if i < 0 || e.Runner != "" && k.attempts[i].Runner != e.Runner {
			a.fault("%s: an effect of call %s at %s in attempt %s, which was never given to it", k.session, e.Call, e.Runner,
				e.Attempt)
		}
	}
	for id, k := range a.calls {
		lines := did[id]
		perAttempt := map[string]int{}
		for _, e := range lines {
			if e.Runner == "" && k.Tool == ToolAgain {
				continue // a plugin's; an idempotent tool may be asked again elsewhere
			}
			if perAttempt[e.Attempt]++; perAttempt[e.Attempt] == 2 {
				a.fault("%s: attempt %s at call %s ran twice", k.session, e.Attempt, id)
			}
		}
		if len(k.results) == 0 || !strings.HasPrefix(k.Tool, "e2e:") {
			continue // its effects are not in the file
		}
		result := k.results[0]
		switch {
		case k.Tool != ToolAgain && len(lines) > 1:
			a.fault("%s: call %s of %s, which is not idempotent, had its effect %d times: %s", k.session, id, k.Tool, len(lines),
				where(lines))
		case slices.Contains(didNotRun, result) && len(lines) > 0:
			a.fault("%s: call %s of %s ended as %s and had its effect: %s", k.session, id, k.Tool, result, where(lines))
		case result == "success" && len(lines) == 0:
			a.fault("%s: call %s of %s succeeded without an effect", k.session, id, k.Tool)
		}
	}
}

func where(lines []Effect) string {
	var out []string
	for _, e := range lines {
		out = append(out, fmt.Sprintf("at %s by %s, attempt %s", e.At.Format(time.StampMilli), e.Runner, e.Attempt))
	}
	return strings.Join(out, "; ")
}
