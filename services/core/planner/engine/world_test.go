package engine_test

import (
	"cmp"
	"encoding/json"
	"slices"
	"testing"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/planner/engine"
	"skandha.dev/services/internal/lexical"
	"skandha.dev/services/internal/toolschema"
)

var specs = []tool.Spec{
	{
		Name: "mail:send", Description: "Sends a mail to a recipient", ScenarioTags: []string{"communication"},
		Args: json.RawMessage(`{"type":"object","required":["to","subject"],"additionalProperties":false,"properties":{
			"to":{"type":"string","format":"email","description":"address of the recipient"},
			"subject":{"type":"string","description":"the subject line"},"urgent":{"type":"boolean","default":false}}}`),
	},
	{
		Name: "file_system:read_file", Description: "Reads a file 读取文件 ファイルを読む", ScenarioTags: []string{"file_management"},
		Args: json.RawMessage(`{"type":"object","required":["path"],"additionalProperties":false,"properties":{
			"path":{"type":"string"},"limit":{"type":"integer","default":100}}}`),
	},
	{
		Name: "http:fetch", Description: "Fetches a web page", ScenarioTags: []string{"information_retrieval"},
		Args: json.RawMessage(`{"type":"object","required":["url"],"additionalProperties":false,"properties":{
			"url":{"type":"string","format":"uri"},"timeout_ms":{"type":"integer"},
			"method":{"type":"string","enum":["GET","POST"],"default":"GET"}}}`),
	},
	{
		Name: "time:now", Description: "Tells the time in a timezone",
		Args: json.RawMessage(`{"type":"object","properties":{"timezone":{"type":"string","default":"UTC"}},"additionalProperties":false}`),
	},
}

// words matches tools by the words that they share with the request.
type words struct{}

func (words) Match(in engine.Intent, scenario string, among []tool.Spec, limit int) engine.Ranking {
	r := engine.Ranking{Method: event.MethodLexical}
	query := lexical.Terms(in.Text)
	tagged := slices.ContainsFunc(among, func(s tool.Spec) bool { return slices.Contains(s.ScenarioTags, scenario) })
	for _, s := range among {
		if scenario != "" && tagged && !slices.Contains(s.ScenarioTags, scenario) {
			continue
		}
		n := 0
		for _, t := range lexical.Terms(s.Name + " " + s.Description) {
			if slices.Contains(query, t) {
				n++
			}
		}
		fit := float64(n) / float64(n+2)
		r.Candidates = append(r.Candidates, event.Candidate{Tool: s.Name, Fit: fit, Score: fit})
	}
	slices.SortStableFunc(r.Candidates, func(a, b event.Candidate) int { return cmp.Compare(b.Score, a.Score) })
	r.Candidates = r.Candidates[:min(limit, len(r.Candidates))]
	return r
}

var validators = func() map[string]*toolschema.Validator {
	out := map[string]*toolschema.Validator{}
	for _, s := range specs {
		v, err := toolschema.Compile(s)
		if err != nil {
			panic(err)
		}
		out[s.Name] = v
	}
	return out
}()

func request(text string) engine.Request {
	return engine.Request{
		Text: text, Tools: specs, Matcher: words{},
		Validate: func(name string, args json.RawMessage) (json.RawMessage, []string) {
			return validators[name].Validate(args)
		},
	}
}

func same(t *testing.T, what string, got json.RawMessage, want string) {
	t.Helper()
	var a, b any
	if json.Unmarshal(got, &a) != nil || json.Unmarshal([]byte(want), &b) != nil {
		t.Fatalf("%s: got %s, want %s", what, got, want)
	}
	x, _ := json.Marshal(a)
	if y, _ := json.Marshal(b); string(x) != string(y) {
		t.Errorf("%s: got %s, want %s", what, x, y)
	}
}
