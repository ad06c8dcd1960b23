package memories

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/memory"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/text"
)

// Bounds of the texts that core writes, in bytes.
const (
	maxAnswer    = 1 << 10
	maxRequest   = 120 // of a request that a capability names
	keptRequests = 5
)

// toolPrefix begins the ids of capabilities.
const toolPrefix = "tool-"

// Learn writes what a commit leaves for the agent's memory: experiences, lessons and
// capabilities. Repeating it changes nothing.
func (m *Memories) Learn(ctx context.Context, ref subject.Ref, c event.Commit) error {
	var all []memory.Memory
	var served []memory.Memory
	v := event.Visitor{
		Recorded: func(p event.Recorded) {
			if p.Learned == nil {
				return
			}
			x := experience(ref, c, p.Sequence, *p.Learned, outcome("answered", p.Actions, p.Usage.CostMicroUSD, p.DurationMS))
			x.Text += "\nAnswered: " + text.Cut(p.Answer, maxAnswer)
			all = append(append(all, x), lessons(x, *p.Learned)...)
			served = append(served, x)
		},
		TurnFailed: func(p event.TurnFailed) {
			if p.Learned == nil {
				return
			}
			x := experience(ref, c, p.Sequence, *p.Learned, outcome(string(p.Code), p.Actions, p.Usage.CostMicroUSD, p.DurationMS))
			x.Text += fmt.Sprintf("\nEnded without an answer (%s): %s", p.Code, text.Cut(p.Reason, maxAnswer))
			all = append(append(all, x), lessons(x, *p.Learned)...)
		},
	}
	for i := range c.Events {
		_ = v.Visit(c.Events[i]) // the fold reports what cannot be read
	}
	for _, x := range all {
		if err := m.learn(ctx, x); err != nil {
			return err
		}
	}
	for _, x := range served {
		if err := m.proved(ctx, x); err != nil {
			return err
		}
	}
	return nil
}

// learn stores a new memory, unless its key was used before: it was learned already, and
// somebody may have deleted it since. The follower indexes it, together with others.
func (m *Memories) learn(ctx context.Context, x memory.Memory) error {
	_, err := m.keep(ctx, x, 0)
	if errors.Is(err, bus.ErrFenceLost) {
		return nil
	}
	return err
}

func outcome(status string, actions []event.Action, cost, ms int64) memory.Outcome {
	o := memory.Outcome{Status: status, CostMicroUSD: max(cost, 0), DurationMS: max(ms, 0)}
	for _, a := range actions {
		if !slices.Contains(o.Tools, a.Tool) {
			o.Tools = append(o.Tools, a.Tool)
		}
		if !a.Success && !slices.Contains(o.Failed, a.Tool) {
			o.Failed = append(o.Failed, a.Tool)
		}
	}
	return o
}

// experience returns the memory of a turn, without its end. The id is the same whenever the
// commit is read.
func experience(ref subject.Ref, c event.Commit, seq uint64, l event.Learned, o memory.Outcome) memory.Memory {
	turn, at := event.TurnID(seq), c.Header.Now
	x := memory.Memory{
		ID: turn + "-" + strconv.FormatInt(at.UnixMilli(), 36), Agent: ref.Agent, Kind: memory.Experience,
		Text:    "Asked: " + l.Asked,
		Source:  memory.Source{Origin: l.Origin, Principal: l.Writer, Session: ref.Session, Turn: turn},
		Outcome: &o, Created: at,
	}
	if len(o.Tools) > 0 {
		x.Text += "\nUsed: " + strings.Join(o.Tools, ", ")
	}
	return x
}

// lessons returns the lessons of the turn of an experience.
func lessons(x memory.Memory, l event.Learned) (out []memory.Memory) {
	for i, lesson := range l.Lessons {
		m := x
		m.ID, m.Kind, m.Outcome, m.Source.Tool = fmt.Sprintf("%s-l%d", x.ID, i), memory.Lesson, nil, lesson.Tool
		m.Text = fmt.Sprintf("A call of %s failed: %s\nThis worked: %s", lesson.Tool, lesson.Failed, lesson.Worked)
		out = append(out, m)
	}
	return out
}

// proved notes that the tools of an experience have served its request.
func (m *Memories) proved(ctx context.Context, x memory.Memory) error {
	request := text.Cut(strings.Join(strings.Fields(strings.TrimPrefix(x.Text[:strings.IndexByte(x.Text+"\n", '\n')], "Asked: ")), " "), maxRequest)
	for _, tool := range x.Outcome.Tools {
		if slices.Contains(x.Outcome.Failed, tool) || request == "" {
			continue
		}
		if err := m.serve(ctx, x, tool, request); err != nil {
			return err
		}
	}
	return nil
}

// serve adds a request to the capability of a tool. Another core may do so at the same time.
func (m *Memories) serve(ctx context.Context, x memory.Memory, tool, request string) error {
	for range 5 {
		c, rev, err := m.get(ctx, x.Agent, toolPrefix+tool)
		switch {
		case errors.Is(err, bus.ErrNotFound):
			c = memory.Memory{
				ID: "tool-" + tool, Agent: x.Agent, Kind: memory.Capability, Created: x.Created,
				Source: memory.Source{Origin: x.Source.Origin, Tool: tool},
			}
			c.Text = capability(tool, []string{request})
			return m.learn(ctx, c)
		case err != nil:
			return err
		}
		known := requests(c.Text)
		if len(known) == 0 || slices.Contains(known, request) { // without any, a person has rewritten it
			return nil
		}
		known = append(known, request)
		c.Text, c.Updated = capability(tool, known[max(0, len(known)-keptRequests):]), x.Created
		if slices.Index(memory.Origins(), x.Source.Origin) > slices.Index(memory.Origins(), c.Source.Origin) {
			c.Source.Origin = x.Source.Origin
		}
		if _, err = m.keep(ctx, c, rev); !errors.Is(err, bus.ErrFenceLost) {
			return err
		}
	}
	return nil // others add requests all the time: this one is not needed
}

const served = " has served requests such as:\n- "

func capability(tool string, requests []string) string {
	return tool + served + strings.Join(requests, "\n- ")
}

// requests returns the requests that a capability names; none if a person has rewritten it.
func requests(capability string) []string {
	_, list, ok := strings.Cut(capability, served)
	if !ok {
		return nil
	}
	return strings.Split(list, "\n- ")
}
