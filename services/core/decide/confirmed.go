package decide

import (
	"fmt"
	"slices"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/services/core/security/grant"
)

func (s *State) onToolCallRequest(p event.ToolCallRequest) error {
	st, err := s.open(p.ConfirmationID)
	if err != nil {
		return err
	}
	st.Status, st.Final, st.Hash, st.Warning = Confirming, p.Args, p.Hash, p.SecurityWarning
	st.ExpiresAt, st.Always = p.ExpiresAt, p.Always
	st.ApprovedBy, st.Answer, st.Approval, st.Approvers = "", p.Answer, p.Approval, nil
	t := s.Turn
	if t.AskedUntil.IsZero() {
		t.AskedUntil = s.Now
	}
	if more := p.ExpiresAt.Sub(t.AskedUntil); more > 0 {
		t.Deadline, t.AskedUntil = t.Deadline.Add(more), p.ExpiresAt
	}
	return nil
}

// onActApproved notes the first of several approvals. The request still waits.
func (s *State) onActApproved(p event.ActApproved) error {
	st, err := s.open(p.Call)
	if err != nil {
		return err
	}
	if st.Status != Confirming {
		return fmt.Errorf("call %s is not waiting for confirmation", p.Call)
	}
	st.approve(Approver{Person: p.Person, Always: p.Always})
	return nil
}

// approve notes who has approved, if it is known. Earlier states share the list.
func (st *Step) approve(a Approver) {
	if a.Person != "" {
		st.Approvers = append(slices.Clip(st.Approvers), a)
	}
}

func (s *State) onActConfirmed(p event.ActConfirmed) error {
	st, err := s.open(p.Call)
	if err != nil {
		return err
	}
	if st.Status != Confirming {
		return fmt.Errorf("call %s is not waiting for confirmation", p.Call)
	}
	st.Always = nil
	t := s.Turn
	t.Idle = s.Now
	if !slices.ContainsFunc(t.Steps, func(o Step) bool { return o.Status == Confirming && o.Call != st.Call }) {
		t.Deadline, t.AskedUntil = t.Deadline.Add(s.Now.Sub(t.AskedUntil)), time.Time{}
	}
	if p.Outcome == event.Approved {
		st.Status, st.ApprovedBy = Approved, p.By
		st.Approvers = slices.DeleteFunc(slices.Clone(st.Approvers), func(a Approver) bool { return !slices.Contains(p.Others, a.Person) })
		st.approve(Approver{Person: p.Person})
		s.Breaker.Consecutive = 0
		s.grant(p.Always)
	}
	return nil
}

// grant keeps an approval for the session, without duplicates.
func (s *State) grant(g *event.Grant) {
	if g == nil || grant.In(s.Grants, *g) {
		return
	}
	s.Grants = append(s.Grants, *g)
	s.GrantChain = chain(s.GrantChain, encode(*g))
}
