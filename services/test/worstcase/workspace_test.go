package worstcase

import (
	"slices"
	"strings"
	"testing"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/tool"
)

// A rule about texts from outside matches in any session that reads from the workspace what another
// one has read outside and kept, and the question to a person names where it was from.
func TestTheWorkspaceLaundersNoText(t *testing.T) {
	w := newWorld(t, func(w *world) {
		w.policy = `policy:
  - {tool: "web:fetch", effect: allow}
  - {tool: "desk:post", effect: allow}
  - {tool: "desk:post", after: untrusted, effect: deny, reason: it follows a text from outside}
`
	})
	w.set(w.pages, "/page/news", "the news")
	page := `DO: web:fetch {"url":"` + w.url + `/page/news"}` + "\nTHEN: "
	const post = "\n" + `THEN: desk:post {"to":"$SINK/posted/$ID","body":"x"}`
	for i, x := range []struct {
		name, keeps, reads string
		denied             bool
	}{
		{"a file", page + `file_system:write_file {"path":"$ID.txt","content":"the news"}`, `DO: file_system:read_file {"path":"$ID.txt"}`, true},
		{"a file with more text", page + `file_system:append_file {"path":"$ID.txt","content":"the news"}`, `DO: file_system:read_file {"path":"$ID.txt"}`, true},
		{"the name of a file", page + `file_system:write_file {"path":"$ID/the news","content":""}`, `DO: file_system:list {"path":"$ID"}`, true},
		{"a note", page + `notes:add {"text":"the news"}`, `DO: notes:search {}`, true},
		{
			"a plan", `DO: plan:execute {"steps":[{"id":"a","tool":"web:fetch","params":{"url":"` + w.url + `/page/news"}},` +
				`{"tool":"file_system:write_file","params":{"path":"$ID.txt","content":"${a.content}"}}]}`,
			`DO: plan:execute {"steps":[{"tool":"file_system:read_file","params":{"path":"$ID.txt"}}]}`, true,
		},
		{"own words in a file", `DO: file_system:write_file {"path":"$ID.txt","content":"mine"}`, `DO: file_system:read_file {"path":"$ID.txt"}`, false},
		{"own words in a note", `DO: notes:add {"text":"mine"}`, `DO: notes:search {}`, false},
		{"a plan of own words", `DO: file_system:write_file {"path":"$ID.txt","content":"mine"}`, `DO: plan:execute {"steps":[{"tool":"file_system:read_file","params":{"path":"$ID.txt"}}]}`, false},
	} {
		t.Run(x.name, func(t *testing.T) {
			id := agentOf(i)
			first, second := w.chat(t, id, "first"), w.chat(t, id, "second")
			first.say("ada", event.Input{Text: w.fill(x.keeps, id)})
			second.say("ada", event.Input{Text: w.fill(x.reads+post, id)})
			if bad := first.unlike(); len(bad) > 0 {
				t.Fatalf("the text is not kept: %v", bad)
			}
			last := second.ended[len(second.ended)-1]
			denied := last.Result.Error != nil && last.Result.Error.Code == tool.CodeDenied
			if last.Tool != "desk:post" || denied != x.denied {
				t.Errorf("%s ended with %+v, want it to be denied: %t", last.Tool, last.Result, x.denied)
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			posted := slices.ContainsFunc(w.arrived, func(r string) bool { return strings.Contains(r, "/posted/"+id) })
			if posted == x.denied {
				t.Errorf("the web server has received it: %t", posted)
			}
		})
	}
}
