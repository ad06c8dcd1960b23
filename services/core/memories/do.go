package memories

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/memory"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/attempt"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/embed"
	index "skandha.dev/services/internal/memory"
)

const (
	defaultLimit = 20
	maxLimit     = 100
	modelWait    = 500 * time.Millisecond
	indexWait    = 500 * time.Millisecond
)

// Do answers a request of service.admin.memory. Errors are *[bus.Error].
func (m *Memories) Do(ctx context.Context, q coreapi.MemoryQuery) (a coreapi.MemoryAnswer, err error) {
	if err := check(q); err != nil {
		return a, err
	}
	q.Limit = min(cmp.Or(q.Limit, defaultLimit), maxLimit)
	looks := q.Op == coreapi.MemoryList || q.Op == coreapi.MemorySearch
	if looks {
		m.catchUp(ctx, m.high.Load())
	}
	switch q.Op {
	case coreapi.MemoryList:
		a.Memories, a.Next, err = m.cfg.Index.List(ctx, q.Agent, q.Kinds, q.Limit, q.After)
	case coreapi.MemorySearch:
		r := m.For(embed.NewPatience(embedWait))
		a.Hits, a.Trouble, err = r.search(ctx, index.Query{Agent: q.Agent, Text: q.Text, Kinds: q.Kinds, Limit: q.Limit})
	case coreapi.MemoryStore:
		a.Memory, err = m.store(ctx, q)
	case coreapi.MemoryCorrect:
		a.Memory, err = m.correct(ctx, q)
	case coreapi.MemoryForget:
		err = m.forget(ctx, q.Agent, q.ID)
	}
	if model, wrong := m.modelNow(ctx, looks); wrong == nil {
		a.Embedder = model
	}
	if behind := m.behind.Load(); behind != nil && looks && a.Trouble == "" {
		a.Trouble = "the index of memories is not complete: " + *behind
	}
	return a, outward(err)
}

// modelNow returns the embedder's model, if the answer needs it.
func (m *Memories) modelNow(ctx context.Context, needed bool) (string, error) {
	if !needed {
		return "", nil
	}
	ctx, cancel := context.WithTimeout(ctx, modelWait)
	defer cancel()
	return m.model.Model(ctx)
}

// outward gives the errors of an index the codes of the bus.
func outward(err error) error {
	switch {
	case errors.Is(err, index.ErrInvalid):
		return &bus.Error{Code: bus.CodeInvalidArgument, Message: err.Error()}
	case errors.Is(err, index.ErrUnavailable), errors.Is(err, index.ErrClosed):
		return &bus.Error{Code: bus.CodeUnavailable, Message: err.Error()}
	case errors.Is(err, ErrFull):
		return &bus.Error{Code: bus.CodeOverloaded, Message: err.Error()}
	case errors.Is(err, bus.ErrFenceLost):
		return &bus.Error{Code: bus.CodeConflict, Message: "the memory was changed at the same time; read it again"}
	}
	return err
}

func check(q coreapi.MemoryQuery) error {
	bad := func(format string, args ...any) error {
		return bus.Errorf(bus.CodeInvalidArgument, "query: "+format, args...)
	}
	ops := []coreapi.MemoryOp{
		coreapi.MemoryList, coreapi.MemorySearch, coreapi.MemoryStore, coreapi.MemoryCorrect, coreapi.MemoryForget,
	}
	_, who := subject.Parse[subject.Writer](string(q.Caller))
	switch {
	case !slices.Contains(ops, q.Op):
		return bad("op is %.40q, want one of %q", q.Op, ops)
	case !subject.Valid(q.Agent):
		return bad("agent is %.80q, want an id of 1 to 64 letters, digits, _ or -", q.Agent)
	case who != nil:
		return bad("caller: %v", who)
	case q.Limit < 0:
		return bad("limit is %d, want 1 to %d", q.Limit, maxLimit)
	case q.Op == coreapi.MemoryStore && strings.HasPrefix(q.ID, toolPrefix):
		return bad("id is %.80q, but ids that begin with %q are those of capabilities", q.ID, toolPrefix)
	case q.ID == "" && (q.Op == coreapi.MemoryCorrect || q.Op == coreapi.MemoryForget):
		return bad("id is missing: %s needs one", q.Op)
	case q.Text == "" && (q.Op == coreapi.MemorySearch || q.Op == coreapi.MemoryStore):
		return bad("text is missing: %s needs one", q.Op)
	case q.Op == coreapi.MemoryCorrect && q.Text == "" && q.Pinned == nil:
		return bad("text or pinned is missing: there is nothing to correct")
	}
	for _, k := range q.Kinds {
		if !slices.Contains(memory.Kinds(), k) {
			return bad("kinds has %.40q, want some of %q", k, memory.Kinds())
		}
	}
	return nil
}

// store creates a memory. With the id of one that exists, it returns that.
func (m *Memories) store(ctx context.Context, q coreapi.MemoryQuery) (*memory.Memory, error) {
	x := memory.Memory{
		ID: cmp.Or(q.ID, "m-"+attempt.Nonce()), Agent: q.Agent, Kind: cmp.Or(q.Kind, memory.Fact), Text: q.Text,
		Source: memory.Source{Origin: memory.FromPerson, Principal: q.Caller}, Created: now(),
	}
	if q.Source != nil {
		if err := m.source(ctx, &x, *q.Source); err != nil {
			return nil, err
		}
	}
	x.Pinned = q.Pinned != nil && *q.Pinned
	err := m.put(ctx, x, 0)
	if !errors.Is(err, bus.ErrFenceLost) {
		return &x, err
	}
	old, _, err := m.get(ctx, q.Agent, x.ID)
	switch {
	case errors.Is(err, bus.ErrNotFound):
		return nil, bus.Errorf(bus.CodeConflict, "memory %q was deleted, and its id cannot be used again", q.ID)
	case err == nil && (old.Text != x.Text || old.Kind != x.Kind):
		return nil, bus.Errorf(bus.CodeConflict, "id %q is that of another memory; leave it out, or correct that one", q.ID)
	}
	return &old, err
}

// source sets the source that the caller names. What a tool call stores is worth no more than
// what the model of its session has seen.
func (m *Memories) source(ctx context.Context, x *memory.Memory, s memory.Source) error {
	if s.Session != "" {
		ref, err := subject.ParseRef(string(x.Agent), string(s.Session))
		if err != nil {
			return bus.Errorf(bus.CodeInvalidArgument, "query: source: %v", err)
		}
		seen, err := m.cfg.Origin(ctx, ref)
		if err != nil {
			return fmt.Errorf("reading what session %s has seen: %w", ref, err)
		}
		if slices.Index(memory.Origins(), seen) > slices.Index(memory.Origins(), s.Origin) {
			s.Origin = seen
		}
	}
	s.Principal = cmp.Or(s.Principal, x.Source.Principal)
	x.Source = s
	return nil
}

// correct changes the text or the pin. A text by a person makes the memory theirs.
func (m *Memories) correct(ctx context.Context, q coreapi.MemoryQuery) (*memory.Memory, error) {
	x, rev, err := m.get(ctx, q.Agent, q.ID)
	if err != nil {
		return nil, err
	}
	if q.Text != "" && q.Text != x.Text {
		x.Text = q.Text
		x.Source.Origin, x.Source.Principal, x.Source.URL = memory.FromPerson, q.Caller, ""
	}
	if q.Pinned != nil {
		x.Pinned = *q.Pinned
	}
	x.Updated = now()
	return &x, m.put(ctx, x, rev)
}
