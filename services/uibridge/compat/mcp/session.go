package mcp

import (
	"cmp"
	"context"
	"slices"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/text"
	input "skandha.dev/services/internal/turn"
	"skandha.dev/services/uibridge/compat/turn"
	"skandha.dev/services/uibridge/contract"
	"skandha.dev/services/uibridge/request"
)

// errNoSession is the error for a session that does not exist, or that the principal may not see.
var errNoSession = &contract.Error{Code: contract.CodeNotFound, Field: "session", Message: "no such session"}

type readSessionInput struct {
	Session string `json:"session"`
	Agent   string `json:"agent,omitempty" jsonschema:"default: main"`
	Limit   int    `json:"limit,omitempty" jsonschema:"the most turns, 1 to 50; default 10"`
	Before  string `json:"before,omitempty" jsonschema:"the next of the previous page"`
}

// Session is what clients see of a session.
type Session struct {
	Agent     subject.Agent   `json:"agent"`
	Session   subject.Session `json:"session"`
	Title     string          `json:"title,omitempty"`
	State     string          `json:"state"`
	Turns     []Turn          `json:"turns" jsonschema:"the latest first"`
	Next      string          `json:"next,omitempty" jsonschema:"the before of the following page, if there is one"`
	Cut       string          `json:"cut,omitempty" jsonschema:"why something is left out"`
	Waiting   []Waiting       `json:"waiting,omitempty" jsonschema:"the tool calls that wait for approval"`
	Artifacts []Artifact      `json:"artifacts,omitempty" jsonschema:"files of the session, the latest first"`
}

// Turn is one input of a session and what came of it.
type Turn struct {
	Turn    string    `json:"turn"`
	By      string    `json:"by,omitempty"`
	Started time.Time `json:"started"`
	Input   string    `json:"input"`
	Steps   []string  `json:"steps,omitempty" jsonschema:"its tool calls and their results, one line each"`
	Outcome string    `json:"outcome" jsonschema:"answered, command, running, queued, or a code of a failure"`
	Answer  string    `json:"answer,omitempty"`
	Reason  string    `json:"reason,omitempty" jsonschema:"why it has failed"`
}

// The limits of what is read of a session.
const (
	defaultTurns = 10
	maxTurns     = 50
	maxText      = 64 << 10 // bytes of an input or an answer
	maxSteps     = 100      // of a turn
	maxArtifacts = 50
)

func (d *Handler) readSession(
	ctx context.Context, _ *sdk.CallToolRequest, in readSessionInput,
) (*sdk.CallToolResult, *Session, error) {
	if in.Limit < 0 || in.Limit > maxTurns {
		return nil, nil, d.seen(contract.Invalid("limit", "want 1 to 50"))
	}
	c := callerOf(ctx)
	ref, err := d.known(ctx, c, in.Agent, in.Session)
	if err != nil {
		return nil, nil, d.seen(err)
	}
	s, err := d.session(ctx, c, ref, cmp.Or(in.Limit, defaultTurns), in.Before)
	if err != nil {
		return nil, nil, d.seen(err)
	}
	return nil, s, nil
}

// turnsPage is a page of turns, the latest first.
type turnsPage struct {
	Turns []turnRow `json:"turns"`
	Next  string    `json:"next"`
	Cut   string    `json:"cut"`
}

type turnRow struct {
	Turn     string         `json:"turn"`
	Sequence uint64         `json:"sequence"`
	After    string         `json:"after"`
	Text     string         `json:"text"`
	Writer   subject.Writer `json:"writer"`
	Outcome  string         `json:"outcome"`
	Reason   string         `json:"reason"`
	Started  time.Time      `json:"started"`
}

func (d *Handler) turns(ctx context.Context, c *caller, ref subject.Ref, limit int, before string) (turnsPage, error) {
	return call[turnsPage](ctx, d, c, "listTurns",
		map[string]any{"agent": ref.Agent, "session": ref.Session, "limit": limit, "before": before})
}

// known returns a session that exists and that the caller may see, or errNoSession.
func (d *Handler) known(ctx context.Context, c *caller, agent, session string) (subject.Ref, error) {
	if err := c.p.Require(contract.See, ""); err != nil {
		return subject.Ref{}, err
	}
	ref, err := request.Ref(string(agentOf(c.p, agent)), session)
	if err == nil {
		err = c.p.Require(contract.See, ref.Agent)
	}
	var page turnsPage
	if err == nil {
		page, err = d.turns(ctx, c, ref, 1, "")
	}
	if hidden(err) || err == nil && len(page.Turns) == 0 && page.Cut == "" {
		return subject.Ref{}, errNoSession
	}
	return ref, err
}

// session reads a page of a session's turns from the log.
func (d *Handler) session(ctx context.Context, c *caller, ref subject.Ref, limit int, before string) (*Session, error) {
	page, err := d.turns(ctx, c, ref, limit, before)
	if err != nil {
		return nil, err
	}
	out := &Session{Agent: ref.Agent, Session: ref.Session, Turns: []Turn{}, Next: page.Next, Cut: page.Cut}
	for _, r := range page.Turns {
		out.Turns = append(out.Turns, Turn{
			Turn: r.Turn, By: string(r.Writer), Started: r.Started, Input: r.Text, Outcome: r.Outcome, Reason: r.Reason,
		})
	}
	after := ""
	if n := len(page.Turns); n > 0 {
		after = page.Turns[n-1].After
	}
	s, err := turn.AttachSession(ctx, d.deps.Backend, c.p, ref, after, "mcp")
	if err != nil {
		return nil, err
	}
	defer s.Close()
	out.Title, out.State = s.Attached.Title, string(s.Attached.State)
	for i := range s.Attached.Pending {
		out.Waiting = append(out.Waiting, waitingOf(&s.Attached.Pending[i]))
	}
	if err := d.fill(ctx, s, out, page.Turns); err != nil {
		return nil, err
	}
	out.Artifacts, err = d.artifacts(ctx, c, ref)
	return out, err
}

// fill reads the whole texts and the steps of turns that have ended, up to the last one's end. Of
// those that run, what came before that is read, too.
func (d *Handler) fill(ctx context.Context, s *turn.Session, out *Session, rows []turnRow) error {
	left := map[uint64]bool{}
	for _, r := range rows {
		if r.Outcome != "running" && r.Outcome != "queued" {
			left[r.Sequence] = true
		}
	}
	at := func(seq uint64) *Turn {
		i := slices.IndexFunc(rows, func(r turnRow) bool { return r.Sequence == seq })
		if i < 0 {
			return nil
		}
		return &out.Turns[i]
	}
	for len(left) > 0 {
		v, _, err := s.Next(ctx)
		if err != nil {
			return err
		}
		switch v := v.(type) {
		case *contract.Input:
			if t := at(v.Sequence); t != nil {
				t.Input = text.Cut(v.Text, maxText)
			}
		case *contract.TurnEnd:
			seq := input.End{Recorded: v.Recorded, Failed: v.Failed}.Sequence()
			delete(left, seq)
			if t := at(seq); t != nil && v.Recorded != nil {
				t.Answer = text.Cut(v.Recorded.Answer, maxText)
			}
		case interface{ Of() contract.About }:
			t := at(sequenceOf(v.Of().Turn))
			if line := step(v); t != nil && line != "" && len(t.Steps) < maxSteps {
				t.Steps = append(t.Steps, shortLine(line))
			}
		}
	}
	return nil
}

// sequenceOf returns the sequence of a turn's input; 0 if no turn has the id.
func sequenceOf(turn string) uint64 { return input.SequenceOf(turn) }

// turnID returns the id of the turn of an input.
func turnID(in *contract.Input) string { return event.TurnID(in.Sequence) }
