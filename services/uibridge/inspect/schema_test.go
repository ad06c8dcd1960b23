package inspect_test

import (
	"maps"
	"slices"
	"testing"

	"skandha.dev/services/internal/senses"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/test/schematest"
)

// allowed reports whether schemas/ui/results/<method>.json allows the answer.
func allowed(method string, answer []byte) error {
	return schematest.Check("results/"+method, answer)
}

// The answer of each method is valid against its schema, wherever these tests call one (see
// try). And the schemas do not allow just anything: for each answer, an unknown property, a
// value of another type and a missing required one are refused.
func TestAnswersAreThoseOfTheirSchemas(t *testing.T) {
	w := newWorld(t)
	w.join("guard")
	w.listens("hall", "camera", senses.MediaCamera)
	dead := w.stuck("main", "1", "one")
	seq := w.say(kitchen, "call time:now {}", true)
	err := w.client.Journal.PutArtifact(natstest.Context(t), "main/kitchen/t1-p1-c0/a plot.png", []byte("so"))
	if err != nil {
		t.Fatal(err)
	}
	here := names{Agent: "main", Session: "kitchen"}
	turn := here
	turn.Turn = "t" + jsonText(seq)
	params := map[string]any{
		"listSessions": nil, "getSession": here, "listTools": nil, "listProviders": nil, "listPlugins": nil, "getHooks": nil, "getStatus": nil,
		"pluginAction": map[string]any{"op": "suspend", "plugin": "guard"}, "listTurns": here, "getTimeline": turn,
		"listArtifacts": here, "listMemories": map[string]any{"agent": "main"},
		"searchMemories": map[string]any{"agent": "main", "text": "tea"},
		"addMemory":      map[string]any{"agent": "main", "text": "Ann likes tea.", "id": "m-1"},
		"correctMemory":  map[string]any{"agent": "main", "id": "m-1", "pinned": true},
		"forgetMemory":   map[string]any{"agent": "main", "id": "m-1"},
		"listListeners":  nil, "switchListener": map[string]any{"listener": "hall", "on": true},
		"listOutbox": nil, "outboxAction": map[string]any{"op": "resend", "id": dead},
		"listAudit": map[string]any{"limit": 5, "verify": true}, "listIdentities": nil,
		"revokeIdentity": map[string]any{"identity": "guard"},
	}
	if have := slices.Sorted(maps.Keys(params)); !slices.Equal(have, slices.Sorted(maps.Keys(w.methods))) {
		t.Fatalf("called are %v, not all of %v", have, slices.Sorted(maps.Keys(w.methods)))
	}
	for _, method := range slices.Sorted(maps.Keys(params)) {
		answer := call[any](w, method, params[method])
		object, ok := answer.(map[string]any)
		if list, is := answer.([]any); is && len(list) > 0 {
			object, ok = list[0].(map[string]any)
		}
		if !ok {
			t.Errorf("%s tells nothing: %s", method, jsonText(answer))
			continue
		}
		refused := func(what string) {
			t.Helper()
			if err := allowed(method, []byte(jsonText(answer))); err == nil {
				t.Errorf("%s: its schema allows %s: %s", method, what, jsonText(answer))
			}
		}
		object["nonsense"] = true
		refused("a property that is not there")
		delete(object, "nonsense")
		missing := 0
		for name, v := range maps.Clone(object) {
			delete(object, name)
			if allowed(method, []byte(jsonText(answer))) != nil {
				missing++
			}
			if open := name == "args" || name == "state" && method == "getSession"; !open {
				object[name] = map[string]any{"nonsense": true} // of no property's type
				refused("nonsense as its " + name)
			}
			object[name] = v
		}
		if missing == 0 {
			t.Errorf("%s: its schema requires nothing", method)
		}
		if err := allowed(method, []byte(jsonText(answer))); err != nil {
			t.Error(err)
		}
	}
}
