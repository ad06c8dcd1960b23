package gemini_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"skandha.dev/pkg/provider"
)

// The parts of an answer as a server might write them: with space, escapes and numbers that
// Go would write otherwise, and with unknown fields.
const (
	thought = `{ "thought" : true, "text": "hm", "thoughtSignature":"dGhvdWdodA==" }`
	spoken  = `{"text": "Let me \u003csee\u003e "}`
	signed  = `{"text":"&more", "thoughtSignature" : "dGV4dA=="}`
	first   = `{"functionCall": { "id" : "fc-1" ,"name": "math--evaluate", ` +
		`"args": {"n": 1.50, "big": 12345678901234567890} }, "thoughtSignature": "Zmlyc3Q="}`
	second   = `{"functionCall": {"id": "fc-2", "name": "math--evaluate", "args": {"text": "<&>"}}, "later": [1e400]}`
	noID     = `{ "functionCall": {"name": "time--now"}, "thoughtSignature": "bm9JRA==" }`
	lastSign = `{"text": "", "thoughtSignature": "bGFzdA=="}`
	unsigned = `{"thought": true, "text": "just a thought"}`
)

// wantParts compares an entry of the last request, byte for byte.
func wantParts(t *testing.T, a *api, content int, want ...string) {
	t.Helper()
	c := a.last().Contents[content]
	var got []string
	for _, p := range c.Parts {
		got = append(got, string(p))
	}
	if !slices.Equal(got, want) {
		t.Errorf("entry %d of the role %s has the parts\n%s\nwant\n%s", content, c.Role, strings.Join(got, "\n"),
			strings.Join(want, "\n"))
	}
}

func TestPartsComeBackByteForByte(t *testing.T) {
	a, m := serve(t, answers("STOP", thought, spoken, unsigned, signed, first, second, noID, lastSign),
		answers("STOP", noID), answers("STOP", `{"text":"done"}`))
	resp := mustAsk(t, m, user("go"))
	if resp.TextContent != "Let me <see> &more" || len(resp.ToolCalls) != 3 || resp.StopReason != provider.StopToolCalls {
		t.Fatalf("the answer is %+v", resp)
	}
	for i, want := range []provider.ToolCall{
		{ID: "fc-1", Tool: "math:evaluate", Args: json.RawMessage(`{"n": 1.50, "big": 12345678901234567890}`)},
		{ID: "fc-2", Tool: "math:evaluate", Args: json.RawMessage(`{"text": "<&>"}`)},
		{ID: "call_2", Tool: "time:now", Args: json.RawMessage(`{}`)},
	} {
		if c := resp.ToolCalls[i]; c.ID != want.ID || c.Tool != want.Tool || string(c.Args) != string(want.Args) {
			t.Errorf("call %d is %s %s %s", i, c.ID, c.Tool, c.Args)
		}
	}
	talk := append([]provider.Message{user("go")}, turn(t, resp, "2", "x", "noon")...)
	resp = mustAsk(t, m, talk...)
	talk = append(talk, turn(t, resp, "later")...)
	mustAsk(t, m, talk...)

	wantParts(t, a, 1, thought, spoken, signed, first, second, noID, lastSign)
	wantParts(t, a, 3, noID)
	var responses []string
	for _, raw := range a.last().Contents[2].Parts {
		var p struct {
			Response struct {
				ID, Name string
				Response struct{ Output string }
			} `json:"functionResponse"`
		}
		if err := json.Unmarshal(raw, &p); err != nil {
			t.Fatal(err)
		}
		r := p.Response
		responses = append(responses, r.ID+" "+r.Name+" "+r.Response.Output)
	}
	want := []string{"fc-1 math--evaluate 2", "fc-2 math--evaluate x", " time--now noon"}
	if !slices.Equal(responses, want) {
		t.Errorf("the results are %q, want %q", responses, want)
	}
}

// What a hook has changed, or another provider has written, gets no signature.
func TestOnlyOwnAnswersGetTheirSignatures(t *testing.T) {
	for name, change := range map[string]func(*provider.Message){
		"another text":     func(m *provider.Message) { m.Text += "!" },
		"another tool":     func(m *provider.Message) { m.ToolCalls[0].Tool = "other:tool" },
		"another id":       func(m *provider.Message) { m.ToolCalls[0].ID = "fc-9" },
		"fewer calls":      func(m *provider.Message) { m.ToolCalls = m.ToolCalls[:1] },
		"no state":         func(m *provider.Message) { m.ProviderState = nil },
		"another's state":  func(m *provider.Message) { m.ProviderState = json.RawMessage(`{"gemini_parts":[{}]}`) },
		"a state of parts": func(m *provider.Message) { m.ProviderState = json.RawMessage(`{"gemini_legacy_parts":["{"]}`) },
	} {
		t.Run(name, func(t *testing.T) {
			a, m := serve(t, answers("STOP", spoken, first, second), answers("STOP", `{"text":"done"}`))
			resp := mustAsk(t, m, user("go"))
			talk := append([]provider.Message{user("go")}, turn(t, resp, "2", "3")...)
			change(&talk[1])
			mustAsk(t, m, talk...)
			all, err := json.Marshal(a.last().Contents)
			if err != nil || strings.Contains(string(all), "ignature") || strings.Contains(string(all), "functionCall") ||
				!strings.Contains(string(all), "I called the tool") || !strings.Contains(string(all), "Let me ") {
				t.Errorf("%s was sent, %v", all, err)
			}
		})
	}
}

// The calls of a turn that is over may be without signatures.
func TestCallsOfOthersInATurnThatIsOver(t *testing.T) {
	a, m := serve(t, answers("STOP", `{"text":"done"}`))
	mustAsk(t, m, user("go"),
		provider.Message{Role: provider.RoleAssistant, ToolCalls: []provider.ToolCall{
			{ID: "1", Tool: "math:evaluate", Args: json.RawMessage(`{"n":12345678901234567890}`)},
			{ID: "2", Tool: "3d:print", Args: json.RawMessage(`"not an object"`)},
		}},
		provider.Message{Role: provider.RoleTool, CallID: "1", Tool: "math:evaluate", Text: "2"},
		provider.Message{Role: provider.RoleTool, CallID: "2", Tool: "3d:print", Text: "no", Failed: true},
		provider.Message{Role: provider.RoleAssistant, Text: "2"}, user("thanks"))
	wantParts(t, a, 1, `{"functionCall":{"name":"math--evaluate","args":{"n":12345678901234567890}}}`,
		`{"functionCall":{"name":"_3d--print","args":{"invalid_arguments":"not an object"}}}`)
	if p := string(a.last().Contents[2].Parts[1]); !strings.Contains(p, `"error"`) || !strings.Contains(p, "_3d--print") {
		t.Errorf("the failed result is %s", p)
	}
}

// A state that would be too large is kept without the text; one that still is, not at all.
func TestALongAnswerKeepsItsCalls(t *testing.T) {
	long := `{"text": "` + strings.Repeat("x", 150<<10) + `"}`
	a, m := serve(t, answers("STOP", long, first), answers("STOP", `{"text":"done"}`))
	resp := mustAsk(t, m, user("go"))
	mustAsk(t, m, append([]provider.Message{user("go")}, turn(t, resp, "2")...)...)
	parts := a.last().Contents[1].Parts
	if len(parts) != 2 || len(parts[0]) < 150<<10 || string(parts[1]) != first {
		t.Errorf("%d parts, the last is %s", len(parts), parts[len(parts)-1])
	}
	huge := `{"functionCall": {"name": "a", "args": {"x": "` + strings.Repeat("x", 200<<10) + `"}}, ` +
		`"thoughtSignature": "YQ=="}`
	_, m = serve(t, answers("STOP", huge))
	if resp := mustAsk(t, m, user("go")); resp.ProviderState != nil || len(resp.ToolCalls) != 1 {
		t.Errorf("%d bytes of state, %d calls", len(resp.ProviderState), len(resp.ToolCalls))
	}
}

// Ids are unique in an answer, also where the API's are not.
func TestIdsAreUnique(t *testing.T) {
	call := func(id string) string { return `{"functionCall": {"id": "` + id + `", "name": "a"}}` }
	_, m := serve(t, answers("STOP", call("call_1"), call(""), call("x"), call("x"), call(strings.Repeat("y", 300))))
	seen := map[string]bool{}
	for _, c := range mustAsk(t, m, user("go")).ToolCalls {
		if c.ID == "" || seen[c.ID] || len(c.ID) > 256 {
			t.Errorf("the id %q", c.ID)
		}
		seen[c.ID] = true
	}
	if len(seen) != 5 {
		t.Errorf("%d calls", len(seen))
	}
}
