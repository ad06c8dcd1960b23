package worstcase

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/follow"
	"skandha.dev/services/internal/submit"
	"skandha.dev/services/test/natstest"
)

// call is a call that the person has asked for: a tool, and all arguments that matter.
type call struct {
	tool, args string
	always     bool // is approved for the session, as widely as it is offered
}

// chat is a session, the person who reads it, and what both have seen.
type chat struct {
	w     *world
	t     *testing.T
	ref   subject.Ref
	items <-chan follow.Item

	name   string
	wants  []call
	agrees bool // to all that is asked

	asked    []event.ToolCallRequest
	approved map[string]event.ToolCallRequest // by call
	grants   map[string][]string              // what the approvals for the session named
	audits   map[string]event.Audited         // by call, the last one
	ran      []event.ActRequested
	ended    []event.ActCompleted
	answers  []string
	failed   []event.TurnFailed
}

func (w *world) chat(t *testing.T, agent, session string, wants ...call) *chat {
	t.Helper()
	c := &chat{
		w: w, t: t, ref: subject.Ref{Agent: subject.Agent(agent), Session: subject.Session(session)}, wants: wants,
		approved: map[string]event.ToolCallRequest{}, audits: map[string]event.Audited{}, grants: map[string][]string{},
	}
	var err error
	if c.items, err = w.client.Follow(t.Context(), c.ref); err != nil {
		t.Fatal(err)
	}
	return c
}

// say sends an input and waits for the end of its turn.
func (c *chat) say(writer subject.Writer, in event.Input) {
	c.t.Helper()
	ctx := natstest.Context(c.t)
	seq, err := c.w.client.As(writer).Say(ctx, c.ref, in)
	if err != nil {
		c.t.Fatal(err)
	}
	for {
		select {
		case i, ok := <-c.items:
			if !ok {
				c.t.Fatal("the session cannot be followed any more")
			}
			if c.saw(i.Event, seq) {
				return
			}
		case <-ctx.Done():
			c.t.Fatal("no end of the turn")
		}
	}
}

// saw takes an event, and answers if it is a question. It reports whether the turn has ended.
func (c *chat) saw(e event.Event, seq uint64) (end bool) {
	c.t.Helper()
	read := func(p event.Payload) {
		if err := e.DataAs(p); err != nil {
			c.t.Fatalf("%s: %v", e.Type, err)
		}
	}
	switch e.Type {
	case event.TypeToolCallRequest:
		var p event.ToolCallRequest
		read(&p)
		c.answer(p)
	case event.TypeAudited:
		var p event.Audited
		read(&p)
		c.audits[p.Call] = p
	case event.TypeActRequested:
		var p event.ActRequested
		read(&p)
		c.ran = append(c.ran, p)
	case event.TypeActCompleted:
		var p event.ActCompleted
		read(&p)
		c.ended = append(c.ended, p)
	case event.TypeRecorded:
		var p event.Recorded
		read(&p)
		c.answers = append(c.answers, p.Answer)
		return p.Sequence == seq
	case event.TypeTurnFailed:
		var p event.TurnFailed
		read(&p)
		c.failed = append(c.failed, p)
		return p.Sequence == seq
	}
	return false
}

// answer approves what the person has asked for, and denies the rest.
func (c *chat) answer(q event.ToolCallRequest) {
	c.t.Helper()
	c.asked = append(c.asked, q)
	a := event.Confirmation{ConfirmationID: q.ConfirmationID, Hash: q.Hash}
	if c.agrees {
		a.Approved = true
		c.approved[q.ConfirmationID] = q
	}
	for _, want := range c.wants {
		if !want.is(q.ToolName, q.Args) {
			continue
		}
		a.Approved = true
		if want.always && len(q.Always) > 0 {
			a.Always = &q.Always[len(q.Always)-1]
			b, _ := json.Marshal(a.Always) //nolint:errchkjson // of strings
			c.grants[string(b)] = q.After
		}
		c.approved[q.ConfirmationID] = q
		break
	}
	if _, err := (submit.Sender{Bus: c.w.bus.Bus, Writer: "ada"}).Answer(natstest.Context(c.t), c.ref, a); err != nil {
		c.t.Fatal(err)
	}
}

// is reports whether a call is the one that is wanted: with these arguments, no body and no headers.
func (want call) is(name string, args json.RawMessage) bool {
	var has, should map[string]any
	if want.tool != name || json.Unmarshal(args, &has) != nil || json.Unmarshal([]byte(want.args), &should) != nil {
		return false
	}
	for k, v := range should {
		if fmt.Sprint(has[k]) != fmt.Sprint(v) {
			return false
		}
	}
	for _, k := range []string{"body", "headers"} {
		if _, wanted := should[k]; !wanted && has[k] != nil {
			return false
		}
	}
	return true
}

// faults returns what is wrong in what the session did: calls that leave and that nobody has asked
// for, and questions that do not name what was read.
func (c *chat) faults(label string) (out []string) {
	for _, r := range c.ran {
		if !c.w.leaving[r.Tool] {
			continue
		}
		q, was := c.approved[r.Call]
		a := c.audits[r.Call]
		switch {
		case !was && a.Grant == nil:
			out = append(out, fmt.Sprintf("%s %s ran without an approval (%s)", r.Tool, r.Args, a.Rule))
		case !was:
			b, _ := json.Marshal(a.Grant) //nolint:errchkjson // of strings
			if label != "" && !slices.Contains(c.grants[string(b)], label) {
				out = append(out, fmt.Sprintf("%s %s ran by an approval that does not name %s", r.Tool, r.Args, label))
			}
		case q.Hash != r.Hash:
			out = append(out, fmt.Sprintf("%s %s is not what was approved", r.Tool, r.Args))
		}
	}
	for _, q := range c.asked {
		if _, was := c.approved[q.ConfirmationID]; was || label == "" {
			continue
		}
		if !slices.Contains(q.After, label) {
			out = append(out, fmt.Sprintf("the question about %s names %q, not %s", q.ToolName, q.After, label))
		} else if q.SecurityWarning == nil || !strings.Contains(q.SecurityWarning.Message, label) {
			out = append(out, fmt.Sprintf("the warning about %s does not say %s", q.ToolName, label))
		}
	}
	return out
}

// chats collects the sessions of parallel tests.
type chats struct {
	mu  sync.Mutex
	all []*chat
}

func (c *chats) add(x *chat) *chat {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, x)
	return x
}

// unlike returns the results of a chat that are not successes.
func (c *chat) unlike() (out []string) {
	for _, r := range c.ended {
		if !r.Result.Success {
			out = append(out, fmt.Sprintf("%s: %v", r.Tool, r.Result.Error))
		}
	}
	for _, f := range c.failed {
		out = append(out, fmt.Sprintf("turn failed: %s", f.Code))
	}
	return out
}
