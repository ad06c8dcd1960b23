package client

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/coreapi"
)

// Session is the state of a session as shown to users.
type Session struct {
	Revision uint64 // sequence of its last commit; 0: it has none
	State    event.AgentState
	Title    string
	Running  uint64  // sequence of the input whose turn runs; 0: none does
	Pending  []Asked // confirmation requests that wait for an answer
}

// Asked is a confirmation request as stored in the log.
type Asked struct {
	Event   event.Event
	Request event.ToolCallRequest
	// Approved lists the people who have approved, if more must.
	Approved []string
}

// folded is what this package reads of a session's state.
type folded struct {
	State struct {
		Rev    uint64           `json:"rev"`
		Cursor uint64           `json:"cursor"`
		UI     event.AgentState `json:"ui"`
		Title  string           `json:"title"`
		Turn   *struct {
			Sequence uint64 `json:"sequence"`
			Steps    []struct {
				Call      string `json:"call"`
				Status    string `json:"status"`
				Asked     uint64 `json:"asked"`
				Approvers []struct {
					Person string `json:"person"`
				} `json:"approvers"`
			} `json:"steps"`
		} `json:"turn"`
	} `json:"state"`
}

// Progress is how far a confirmation request is.
type Progress struct {
	Until    uint64   // every answer up to this sequence is decided
	Waits    bool     // for an answer
	Approved []string // the people who have approved, if more must
}

// Progress asks core how far a confirmation request of the session is.
func (c *Client) Progress(ctx context.Context, ref subject.Ref, confirmation string) (s Progress, err error) {
	var answer folded
	err = c.Ask(ctx, coreapi.VerbSession, ref, &answer)
	if errors.Is(err, bus.ErrNotFound) {
		return s, nil
	}
	s.Until = answer.State.Cursor
	if err != nil || answer.State.Turn == nil {
		return s, err
	}
	for _, st := range answer.State.Turn.Steps {
		if st.Call == confirmation && st.Status == confirming {
			s.Waits = true
			for _, a := range st.Approvers {
				s.Approved = append(s.Approved, a.Person)
			}
		}
	}
	return s, nil
}

// Session asks core for the state of a session. One without a commit waits for input.
func (c *Client) Session(ctx context.Context, ref subject.Ref) (Session, error) {
	var answer folded
	err := c.Ask(ctx, coreapi.VerbSession, ref, &answer)
	if errors.Is(err, bus.ErrNotFound) {
		return Session{State: event.StateWaiting}, nil
	}
	if err != nil {
		return Session{}, err
	}
	s := Session{Revision: answer.State.Rev, State: answer.State.UI, Title: answer.State.Title}
	if answer.State.Turn == nil {
		return s, nil
	}
	s.Running = answer.State.Turn.Sequence
	waiting := map[uint64][]string{}  // calls by the commit that asked
	approved := map[string][]string{} // people by call
	var commits []uint64
	for _, st := range answer.State.Turn.Steps {
		if st.Status != confirming {
			continue
		}
		if waiting[st.Asked] == nil {
			commits = append(commits, st.Asked)
		}
		waiting[st.Asked] = append(waiting[st.Asked], st.Call)
		for _, a := range st.Approvers {
			approved[st.Call] = append(approved[st.Call], a.Person)
		}
	}
	for _, seq := range commits {
		asked, err := c.asked(ctx, ref, seq, waiting[seq])
		if err != nil {
			return Session{}, fmt.Errorf("reading the confirmation requests: %w", err)
		}
		for i := range asked {
			asked[i].Approved = approved[asked[i].Request.ConfirmationID]
		}
		s.Pending = append(s.Pending, asked...)
	}
	return s, nil
}

// confirming is the status of a step that waits for a person, in core's state.
const confirming = "confirming"

// asked reads the requests for some calls from the commit that made them.
func (c *Client) asked(ctx context.Context, ref subject.Ref, seq uint64, calls []string) (list []Asked, err error) {
	m, err := c.Journal.Message(ctx, seq)
	if err != nil {
		return nil, err
	}
	if m.Subject != ref.Commit() {
		return nil, fmt.Errorf("message %d is not a commit of %s", seq, ref)
	}
	commit, err := event.DecodeCommit(ref, m.Data)
	if err != nil {
		return nil, err
	}
	for _, e := range commit.Events {
		err := event.Visitor{ToolCallRequest: func(q event.ToolCallRequest) {
			if slices.Contains(calls, q.ConfirmationID) {
				list = append(list, Asked{Event: e, Request: q})
			}
		}}.Visit(e)
		if err != nil && !errors.Is(err, event.ErrUnknownType) {
			return nil, err
		}
	}
	return list, nil
}
