package shell

import (
	"context"
	"encoding/json"
	"fmt"

	"skandha.dev/pkg/memory"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/attempt"
	"skandha.dev/services/internal/coreapi"
)

// memoryTools returns the internal tools about what agents remember.
func (c *Core) memoryTools() []ownTool {
	if c.memories == nil {
		return nil
	}
	internal := func(name, description, args string, idempotent bool) tool.Spec {
		return tool.Spec{
			Name: name, Description: description, Args: json.RawMessage(args), Idempotent: idempotent,
			Internal: true, Risk: tool.RiskLow, TimeoutMS: 10_000,
		}.Sealed()
	}
	return []ownTool{
		{run: c.retrieveMemories, spec: internal("memory:retrieve",
			"Finds what the agent remembers about a text, best first: memories, each with its source, and then notes "+
				"of notes:add that share words with it.",
			`{"type":"object","properties":{
				"query":{"type":"string","minLength":1,"description":"any text, such as what the user said"},
				"kinds":{"type":"array","items":{"enum":["fact","note","experience","lesson","capability"]},"default":[]},
				"limit":{"type":"integer","minimum":1,"maximum":100,"default":5}},
				"required":["query"],"additionalProperties":false}`, true)},
		{run: c.storeMemory, spec: internal("memory:store",
			"Stores a memory of the agent. It is data by a tool, not the wish of a user.",
			fmt.Sprintf(`{"type":"object","properties":{
				"text":{"type":"string","minLength":1,"maxLength":%d,"description":"understandable without its context"},
				"kind":{"enum":["fact","note"],"default":"fact"},
				"id":{"type":"string","minLength":1,"maxLength":128,"description":"the same id again stores nothing new"},
				"url":{"type":"string","description":"of the page or mail that it is from"}},
				"required":["text"],"additionalProperties":false}`, memory.MaxText), false)},
		{run: c.forgetMemory, spec: internal("memory:forget", "Deletes a memory of the agent for good.",
			`{"type":"object","properties":{"id":{"type":"string","minLength":1,"maxLength":128}},
				"required":["id"],"additionalProperties":false}`, true)},
	}
}

// aboutMemory asks the memory of the call's agent.
func (c *Core) aboutMemory(ctx context.Context, n *internalCall, q coreapi.MemoryQuery) (coreapi.MemoryAnswer, *tool.Result) {
	q.Agent, q.Caller = n.Agent, n.Caller
	a, err := c.memories.Do(ctx, q)
	if err != nil {
		r := tool.Failure(tool.CodeFailed, err.Error())
		return a, &r
	}
	return a, nil
}

// retrieveMemories also asks a runner that keeps notes, if there is one. Notes have up to half
// of the places, and those that memories leave.
func (c *Core) retrieveMemories(ctx context.Context, n *internalCall) tool.Result {
	var ask struct {
		Query string        `json:"query"`
		Kinds []memory.Kind `json:"kinds"`
		Limit int           `json:"limit"`
	}
	if err := json.Unmarshal(n.Args, &ask); err != nil {
		return tool.Failure(tool.CodeInvalidArgs, err.Error())
	}
	a, failed := c.aboutMemory(ctx, n, coreapi.MemoryQuery{
		Op: coreapi.MemorySearch, Text: ask.Query, Kinds: ask.Kinds, Limit: ask.Limit,
	})
	if failed != nil {
		return *failed
	}
	var notes []json.RawMessage
	if len(ask.Kinds) == 0 {
		notes = c.notes(ctx, n, ask.Query, ask.Limit)
	}
	places := min(len(notes), max(ask.Limit/2, ask.Limit-len(a.Hits)))
	found := make([]any, 0, ask.Limit)
	for _, h := range a.Hits[:min(len(a.Hits), ask.Limit-places)] {
		found = append(found, h)
	}
	for _, note := range notes[:places] {
		found = append(found, note)
	}
	return tool.OK(map[string]any{"memories": found, "trouble": a.Trouble})
}

// notes returns the notes that a runner's tool of the same name finds, none if there is none.
func (c *Core) notes(ctx context.Context, n *internalCall, query string, limit int) (found []json.RawMessage) {
	spec, known := c.dir.Lookup(n.Tool)
	if !known || !spec.Internal || spec.Sticky || !c.allowed(n)(spec) {
		return nil
	}
	args, err := json.Marshal(map[string]any{"query": query, "limit": limit})
	if err != nil {
		return nil
	}
	call := *n
	call.id, call.spec, call.Args = "internal-"+attempt.Nonce(), spec, args
	r := c.runInternal(ctx, &call)
	var out struct {
		Memories []json.RawMessage `json:"memories"`
	}
	if !r.Success || json.Unmarshal(r.Data, &out) != nil {
		c.log.Warn("the notes cannot be searched", "session", n.ref, "error", r.Error)
	}
	return out.Memories
}

func (c *Core) storeMemory(ctx context.Context, n *internalCall) tool.Result {
	var ask struct {
		Text string      `json:"text"`
		Kind memory.Kind `json:"kind"`
		ID   string      `json:"id"`
		URL  string      `json:"url"`
	}
	if err := json.Unmarshal(n.Args, &ask); err != nil {
		return tool.Failure(tool.CodeInvalidArgs, err.Error())
	}
	source := memory.Source{
		Origin: memory.FromTool, Principal: n.Caller, Session: n.Session, Turn: n.Turn, Tool: n.Tool, URL: ask.URL,
	}
	if ask.URL != "" {
		source.Origin = memory.FromWeb
	}
	a, failed := c.aboutMemory(ctx, n, coreapi.MemoryQuery{
		Op: coreapi.MemoryStore, ID: ask.ID, Text: ask.Text, Kind: ask.Kind, Source: &source,
	})
	if failed != nil {
		return *failed
	}
	return tool.OK(a.Memory)
}

func (c *Core) forgetMemory(ctx context.Context, n *internalCall) tool.Result {
	var ask struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal(n.Args, &ask); err != nil {
		return tool.Failure(tool.CodeInvalidArgs, err.Error())
	}
	if _, failed := c.aboutMemory(ctx, n, coreapi.MemoryQuery{Op: coreapi.MemoryForget, ID: ask.ID}); failed != nil {
		return *failed
	}
	return tool.OK(map[string]string{"forgotten": ask.ID})
}
