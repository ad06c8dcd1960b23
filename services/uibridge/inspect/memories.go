package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"skandha.dev/pkg/memory"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/text"
	"skandha.dev/services/uibridge/contract"
	"skandha.dev/services/uibridge/request"
)

// MemoriesPage is a page of what an agent remembers, newest first.
type MemoriesPage struct {
	Memories []memory.Memory `json:"memories"`
	Next     string          `json:"next,omitempty"` // cursor of the next page
	// Embedder is the model by whose vectors texts are found; empty: by words alone.
	Embedder string `json:"embedder,omitempty"`
	Trouble  string `json:"trouble,omitempty"` // why there is less than there may be
}

// MemoryHits is what an agent remembers that matches a search, best first.
type MemoryHits struct {
	Hits     []memory.Hit `json:"hits"`
	Embedder string       `json:"embedder,omitempty"`
	Trouble  string       `json:"trouble,omitempty"`
}

// Forgotten names a memory that was deleted.
type Forgotten struct {
	Agent subject.Agent `json:"agent"`
	ID    string        `json:"id"`
}

// The limits of listMemories and searchMemories.
const (
	defaultMemories = 20
	maxMemories     = 100
)

type memoriesQuery struct {
	Agent string
	Kinds []string
	Limit int
	After string
}

func (q *memoriesQuery) params() []request.Param {
	return []request.Param{
		{Name: "agent", Into: &q.Agent, Must: true},
		{Name: "kinds", Into: &q.Kinds},
		{Name: "limit", Into: &q.Limit},
		{Name: "after", Into: &q.After},
	}
}

// listMemories returns a page of what an agent remembers.
func (i *inspector) listMemories(ctx context.Context, p contract.Principal, q memoriesQuery) (MemoriesPage, error) {
	ask, err := selection(p, q.Agent, q.Kinds, q.Limit)
	if err != nil {
		return MemoriesPage{}, err
	}
	ask.Op, ask.After = coreapi.MemoryList, q.After
	a, err := i.askMemory(ctx, ask)
	if err != nil {
		return MemoriesPage{}, err
	}
	return MemoriesPage{listed(a.Memories), a.Next, a.Embedder, a.Trouble}, nil
}

type memorySearch struct {
	Agent, Text string
	Kinds       []string
	Limit       int
}

func (q *memorySearch) params() []request.Param {
	return []request.Param{
		{Name: "agent", Into: &q.Agent, Must: true},
		{Name: "text", Into: &q.Text, Must: true},
		{Name: "kinds", Into: &q.Kinds},
		{Name: "limit", Into: &q.Limit},
	}
}

// searchMemories returns what an agent remembers that matches a text.
func (i *inspector) searchMemories(ctx context.Context, p contract.Principal, q memorySearch) (MemoryHits, error) {
	ask, err := selection(p, q.Agent, q.Kinds, q.Limit)
	if err != nil {
		return MemoryHits{}, err
	}
	if ask.Op, ask.Text = coreapi.MemorySearch, q.Text; ask.Text == "" {
		return MemoryHits{}, contract.Invalid("text", "is empty; send what to look for")
	}
	if err := fits("", q.Text); err != nil {
		return MemoryHits{}, err
	}
	a, err := i.askMemory(ctx, ask)
	if err != nil {
		return MemoryHits{}, err
	}
	return MemoryHits{listed(a.Hits), a.Embedder, a.Trouble}, nil
}

type newMemory struct {
	Agent, Text, Kind string
	Pinned            *bool
	ID                string
}

func (q *newMemory) params() []request.Param {
	return []request.Param{
		{Name: "agent", Into: &q.Agent, Must: true},
		{Name: "text", Into: &q.Text, Must: true},
		{Name: "kind", Into: &q.Kind},
		{Name: "pinned", Into: &q.Pinned},
		{Name: "id", Into: &q.ID},
	}
}

// addMemory stores a memory in the principal's own words.
func (i *inspector) addMemory(ctx context.Context, p contract.Principal, q newMemory) (memory.Memory, error) {
	ask, err := changes(p, q.Agent)
	if err != nil {
		return memory.Memory{}, err
	}
	kind := memory.Kind(cmp.Or(q.Kind, string(memory.Fact)))
	if kind != memory.Fact && kind != memory.Note {
		return memory.Memory{}, contract.Invalid("kind", fmt.Sprintf("is %q; want fact or note", text.Cut(q.Kind, 40)))
	}
	if q.Text == "" {
		return memory.Memory{}, contract.Invalid("text", "is empty; send what to remember")
	}
	if err := fits(q.ID, q.Text); err != nil {
		return memory.Memory{}, err
	}
	ask.Op, ask.ID, ask.Text, ask.Kind, ask.Pinned = coreapi.MemoryStore, q.ID, q.Text, kind, q.Pinned
	return i.changeMemory(ctx, ask)
}

type memoryCorrection struct {
	Agent, ID string
	Text      *string
	Pinned    *bool
}

func (q *memoryCorrection) params() []request.Param {
	return []request.Param{
		{Name: "agent", Into: &q.Agent, Must: true},
		{Name: "id", Into: &q.ID, Must: true},
		{Name: "text", Into: &q.Text},
		{Name: "pinned", Into: &q.Pinned},
	}
}

// correctMemory replaces the text of a memory, or pins or unpins it.
func (i *inspector) correctMemory(
	ctx context.Context, p contract.Principal, q memoryCorrection,
) (memory.Memory, error) {
	ask, err := changes(p, q.Agent)
	if err != nil {
		return memory.Memory{}, err
	}
	ask.Op, ask.ID, ask.Pinned = coreapi.MemoryCorrect, q.ID, q.Pinned
	switch {
	case q.ID == "":
		return memory.Memory{}, contract.Invalid("id", "is empty; listMemories lists the ids")
	case q.Text != nil && *q.Text == "":
		return memory.Memory{}, contract.Invalid("text", "is empty; forgetMemory deletes a memory")
	case q.Text != nil:
		ask.Text = *q.Text
	case q.Pinned == nil:
		return memory.Memory{}, contract.Invalid("text", "missing, and so is pinned; send what to change")
	}
	if err := fits(q.ID, ask.Text); err != nil {
		return memory.Memory{}, err
	}
	return i.changeMemory(ctx, ask)
}

type memoryQuery struct{ Agent, ID string }

func (q *memoryQuery) params() []request.Param {
	return []request.Param{{Name: "agent", Into: &q.Agent, Must: true}, {Name: "id", Into: &q.ID, Must: true}}
}

// forgetMemory deletes a memory for good.
func (i *inspector) forgetMemory(ctx context.Context, p contract.Principal, q memoryQuery) (Forgotten, error) {
	ask, err := changes(p, q.Agent)
	if err != nil {
		return Forgotten{}, err
	}
	if q.ID == "" {
		return Forgotten{}, contract.Invalid("id", "is empty; listMemories lists the ids")
	}
	if err := fits(q.ID, ""); err != nil {
		return Forgotten{}, err
	}
	ask.Op, ask.ID = coreapi.MemoryForget, q.ID
	if _, err := i.askMemory(ctx, ask); err != nil {
		return Forgotten{}, err
	}
	i.log.Info("memory changed", "op", ask.Op, "agent", ask.Agent, "id", ask.ID, "by", p.Writer)
	return Forgotten{ask.Agent, q.ID}, nil
}

// aboutMemory returns a query about an agent's memory, for a principal that may ask it.
func aboutMemory(p contract.Principal, r contract.Right, agent string) (coreapi.MemoryQuery, error) {
	q := coreapi.MemoryQuery{Agent: subject.Agent(agent), Caller: p.Writer}
	if !subject.Valid(agent) {
		return q, contract.Invalid("agent", notAnID)
	}
	return q, p.Require(r, q.Agent)
}

// changes returns a query that changes a memory. The answer is the memory as it is then, so the
// right to look is needed, too.
func changes(p contract.Principal, agent string) (coreapi.MemoryQuery, error) {
	q, err := aboutMemory(p, contract.See, agent)
	if err != nil {
		return q, err
	}
	return q, p.Require(contract.Talk, q.Agent)
}

// selection returns a query that lists or searches.
func selection(p contract.Principal, agent string, kinds []string, limit int) (q coreapi.MemoryQuery, err error) {
	if q, err = aboutMemory(p, contract.See, agent); err != nil {
		return q, err
	}
	for _, k := range kinds {
		if !slices.Contains(memory.Kinds(), memory.Kind(k)) {
			return q, contract.Invalid("kinds", fmt.Sprintf("has %q; want some of %v", text.Cut(k, 40), memory.Kinds()))
		}
		q.Kinds = append(q.Kinds, memory.Kind(k))
	}
	q.Limit, err = bounded(limit, defaultMemories, maxMemories)
	return q, err
}

// fits checks a memory's id and text, as far as they are given.
func fits(id, words string) error {
	err := memory.Memory{
		ID: cmp.Or(id, "new"), Agent: "any", Kind: memory.Fact, Text: cmp.Or(words, "unchanged"),
		Source: memory.Source{Origin: memory.FromPerson},
	}.Check()
	if err == nil {
		return nil
	}
	field, message, _ := strings.Cut(err.Error(), " ")
	return contract.Invalid(field, message)
}

func (i *inspector) askMemory(ctx context.Context, q coreapi.MemoryQuery) (a coreapi.MemoryAnswer, err error) {
	err = i.client.Administer(ctx, coreapi.VerbMemory, q, &a)
	return a, err
}

// changeMemory has core store or correct a memory, and returns it as it is now.
func (i *inspector) changeMemory(ctx context.Context, q coreapi.MemoryQuery) (memory.Memory, error) {
	a, err := i.askMemory(ctx, q)
	switch {
	case err != nil:
		return memory.Memory{}, err
	case a.Memory == nil:
		return memory.Memory{}, errors.New("core answered without the memory")
	}
	i.log.Info("memory changed", "op", q.Op, "agent", q.Agent, "id", a.Memory.ID, "by", q.Caller)
	return *a.Memory, nil
}

// listed returns list, or an empty one in place of nil: JSON has them apart.
func listed[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
