package legacytest

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/services/test/geminitest"
)

// rounds are two answers with parallel calls, as a server might write their parts.
var rounds = [][]string{
	{
		`{ "text": "I think", "thought": true, "thoughtSignature": "dGhvdWdodA==" }`,
		`{"text": "Both & \u003cat once\u003e."}`,
		`{"functionCall": { "id": "r1-a", "name": "math--evaluate", "args": {"expression": "1+1"} }, ` +
			`"thoughtSignature": "cjEtYQ=="}`,
		`{"functionCall": {"id": "r1-b", "args": {"expression": "2+2"}, "name": "math--evaluate"}}`,
	},
	{
		`{"functionCall": {"id": "r2-a", "name": "math--evaluate", "args": {"expression": "3+3"}}, ` +
			`"thoughtSignature" : "cjItYQ=="}`,
		`{"functionCall": {"id": "r2-b", "name": "math--evaluate", "args": {"expression": "1/0"}},  ` +
			`"thoughtSignature":"cjItYg=="}`,
		`{"text": "", "thoughtSignature": "cjItZW5k"}`,
	},
}

func answer(parts ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		out := geminitest.NewStream(w)
		for _, p := range parts {
			out.Part(p)
		}
		out.Finish("STOP", contract.Usage{InputTokens: 7, OutputTokens: 3})
	}
}

// What the SDK drops comes back to the API byte for byte, after a journey through the bus and
// core's log, in its place, in each round of the loop.
func TestSignaturesSurviveAToolLoop(t *testing.T) {
	r := start(t)
	r.api.Next(answer(rounds[0]...), answer(rounds[1]...), answer(`{"text": "done"}`))
	end := r.Say("s", "go")
	if end.Answer != "done" || len(end.Calls) != 4 {
		t.Fatalf("the turn ended with %+v", end)
	}
	seen := r.api.Seen()
	if len(seen) != 3 || len(seen[2].Contents) != 5 {
		t.Fatalf("%d requests, the last with %+v", len(seen), seen[len(seen)-1].Contents)
	}
	for i, want := range rounds {
		var got []string
		for _, p := range seen[2].Contents[1+2*i].Parts {
			got = append(got, string(p))
		}
		if !slices.Equal(got, want) {
			t.Errorf("round %d came back as\n%s\nwant\n%s", i+1, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	for i, ids := range [][]string{{"r1-a", "r1-b"}, {"r2-a", "r2-b"}} {
		results := seen[2].Contents[2+2*i].Parts
		for k, id := range ids {
			if len(results) != 2 || !strings.Contains(string(results[k]), `"id":"`+id+`"`) {
				t.Errorf("the results of round %d are %s", i+1, results)
			}
		}
	}
}
