package providertest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"skandha.dev/services/internal/providerapi"
	"skandha.dev/services/provider/adapter"
)

// Subject is an adapter under test, with what it cannot do.
type Subject struct {
	Name string
	// Without names the cases that its wire cannot carry, each with the reason. They are not
	// tested, and the output says so.
	Without map[string]string
	// NoDeltas says why the adapter passes nothing on while an answer is being written. The
	// suite then wants no delta at all, and logs what it cannot test.
	NoDeltas string
}

const (
	someKeywords = "it accepts only some keywords of JSON Schema; the adapter puts the rest into descriptions"
	noArtifacts  = "the provider service adds the content of artifacts, which the suite does not store"
)

// The adapters. Each one's test runs the suite with its entry here; the table in
// services/provider/README.md follows from them.
var (
	OpenAIChat      = Subject{Name: "openai, chat"}
	OpenAIResponses = Subject{Name: "openai, responses"}
	Gemini          = Subject{Name: "gemini"}
	Anthropic       = Subject{Name: "anthropic", Without: map[string]string{
		bySchema:                        someKeywords,
		bySchemaAndTools:                someKeywords,
		"says that nothing was counted": "the API counts every answer, from its first event on",
	}}
	GeminiLegacy = Subject{
		Name: "gemini-legacy, over the bus", NoDeltas: "the protocol of plugins has no deltas",
		Without: map[string]string{
			"shows the files of a message": noArtifacts, "names the files that it cannot show": noArtifacts,
			"shows the files of results": noArtifacts, "lists its models": "plugins are not asked for their models",
		},
	}
)

// Subjects returns the adapters, in the order of the table.
func Subjects() []Subject {
	return []Subject{OpenAIChat, OpenAIResponses, Anthropic, Gemini, GeminiLegacy}
}

// The cases that more than one name refers to.
const (
	bySchema         = "asks for an answer that matches a schema"
	bySchemaAndTools = bySchema + ", beside tools"
	byDeltas         = "streams deltas that concatenate to the text"
	cancelsMidway    = "returns when it is cancelled in the middle of an answer"
)

type suite struct{ Subject }

// Run tests an adapter against the contract. newAdapter returns a new adapter whose
// model obeys the test rules, with retries that do not pause for long.
func Run(t *testing.T, of Subject, newAdapter func(t *testing.T) adapter.Adapter) {
	s := &suite{of}
	known := map[string]bool{}
	for _, c := range s.cases() {
		known[c.name] = true
		if why, without := of.Without[c.name]; without {
			t.Logf("NOT TESTED: %q: %s", c.name, why)
			continue
		}
		t.Run(c.name, func(t *testing.T) { c.test(t, newAdapter(t)) })
	}
	for name := range of.Without {
		if !known[name] {
			t.Errorf("the suite has no case %q to leave out", name)
		}
	}
}

// Table returns the conformance table in Markdown: which adapter passes which case of the
// suite, and why not.
func Table() string {
	var b strings.Builder
	var notes []string
	note := func(why string) string {
		if !slices.Contains(notes, why) {
			notes = append(notes, why)
		}
		return fmt.Sprintf("– (%d)", slices.Index(notes, why)+1)
	}
	b.WriteString("| an adapter |")
	for _, s := range Subjects() {
		b.WriteString(" " + s.Name + " |")
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(Subjects())) + "\n")
	for _, c := range (&suite{}).cases() {
		b.WriteString("| " + c.name + " |")
		for _, s := range Subjects() {
			cell := "yes"
			if why, without := s.Without[c.name]; without {
				cell = note(why)
			} else if s.NoDeltas != "" && (c.name == byDeltas || c.name == cancelsMidway) {
				cell = note(s.NoDeltas)
			}
			b.WriteString(" " + cell + " |")
		}
		b.WriteString("\n")
	}
	b.WriteString("\n")
	for i, why := range notes {
		fmt.Fprintf(&b, "%d. %s\n", i+1, why)
	}
	return b.String()
}

// listsModels tests an adapter that can be asked how it is.
func listsModels(t *testing.T, a adapter.Adapter) {
	c, ok := a.(adapter.Checker)
	if !ok {
		t.Fatal("the adapter is no adapter.Checker")
	}
	models, err := c.Models(t.Context())
	if err != nil || !slices.Contains(models, a.Info().Model) {
		t.Errorf("the models are %q, %v; want %q among them", models, err, a.Info().Model)
	}
	if b := c.Breaker(); b.State != providerapi.Closed {
		t.Errorf("the breaker is %+v", b)
	}
}
