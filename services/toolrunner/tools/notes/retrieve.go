package notes

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"skandha.dev/pkg/memory"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/executor"
	"skandha.dev/services/internal/lexical"
	"skandha.dev/services/toolrunner/tools"
)

// Memory is a note and its score for a query.
type Memory struct {
	Note
	Score float64 `json:"score"` // higher is better; comparable within one answer only
}

// retrieve is notes:search for services and hooks: it ranks notes, so that a whole sentence of a
// user can be the query.
func retrieve(b Book) tools.Tool {
	return tools.New(tool.Spec{
		Name: "memory:retrieve",
		Description: "Finds the notes of notes:add that share words with the query, best first: rare words count more, " +
			"long notes less. No note has to hold all of the words.",
		Args: json.RawMessage(`{"type":"object","properties":{
			"query":{"type":"string","description":"any text, such as what the user said"},
			"kinds":{"type":"array","items":{"type":"string"},"default":[],
				"description":"of memories; without \"note\", nothing is found"},
			"limit":{"type":"integer","minimum":1,"maximum":100,"default":5}},
			"required":["query"],"additionalProperties":false}`),
		Idempotent: true, Internal: true, Risk: tool.RiskLow, Permissions: []string{"fs.read"}, TimeoutMS: 10_000,
	}, func(ctx context.Context, c tools.Call, args struct {
		Query string        `json:"query"`
		Kinds []memory.Kind `json:"kinds"`
		Limit int           `json:"limit"`
	},
	) tool.Result {
		if len(args.Kinds) > 0 && !slices.Contains(args.Kinds, memory.Note) {
			return tool.OK(map[string]any{"memories": []Memory{}})
		}
		if args.Limit <= 0 {
			args.Limit = 5
		}
		found, err := b.Retrieve(ctx, c.Agent, args.Query, args.Limit)
		if err != nil {
			return tools.Fail(fmt.Errorf("retrieving memories: %w", err))
		}
		var after []string
		for _, m := range found {
			after = executor.AddLabels(after, m.After...)
		}
		return tools.Labelled(tool.OK(map[string]any{"memories": found}), after)
	})
}

// Retrieve ranks the notes by BM25.
func (b *book) Retrieve(ctx context.Context, agent subject.Agent, query string, limit int) ([]Memory, error) {
	terms := lexical.Terms(query)
	if len(terms) == 0 {
		return []Memory{}, nil
	}
	var notes []Note
	index := lexical.NewBuilder(terms...)
	err := b.each(ctx, agent, func(n Note) {
		notes = append(notes, n)
		index.Add(lexical.Terms(n.Text)...)
	})
	out := []Memory{}
	for _, h := range index.Index().Search(terms, limit) {
		out = append(out, Memory{notes[h.Text], math.Round(h.Score*1e4) / 1e4})
	}
	return out, err
}
