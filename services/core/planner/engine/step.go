package engine

import (
	"encoding/json"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/tool"
)

// Classifier detects the scenario of a request.
type Classifier interface {
	// Scenario returns one of [tool.Scenarios], or "" if the request belongs to none.
	Scenario(text string) string
}

// Recognizer recognizes what a request asks for.
type Recognizer interface {
	// Intents returns at least one intent, in the order in which they are to be met.
	Intents(text string) []Intent
}

// Matcher matches tools with a request and evaluates them.
type Matcher interface {
	// Match returns the tools among those given that fit best, best first, at most limit. With
	// a scenario, it considers only the tools of the scenario, if there are any.
	Match(in Intent, scenario string, among []tool.Spec, limit int) Ranking
}

// Extractor finds the arguments of a call.
type Extractor interface {
	Parameters(in Intent, spec tool.Spec) Parameters
}

// Intent is one thing that a request asks for.
type Intent struct {
	ID        string // "1", "2", … by default
	Action    string // the verb; may be empty
	Object    string // what it acts on; may be empty
	Text      string // the part of the request
	Tool      string // chosen by a model; empty: the best match
	DependsOn []string

	args json.RawMessage // found by a model
}

// Ranking is what a [Matcher] found.
type Ranking struct {
	Method     event.Method
	Candidates []event.Candidate // best first
}

// Parameters are the arguments that an [Extractor] found.
type Parameters struct {
	Args   json.RawMessage // an object
	Open   []string        // names of required parameters without a value
	Unused []string        // values of the request that no parameter takes

	rest string // of the request: what is no argument
}
