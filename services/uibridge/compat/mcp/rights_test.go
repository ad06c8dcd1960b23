package mcp_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/test/transporttest"
	"skandha.dev/services/test/turntest"
	"skandha.dev/services/uibridge/compat/mcp"
	"skandha.dev/services/uibridge/contract"
)

// code returns the code of a request's error.
func code(err error) int64 {
	e, _ := errors.AsType[*jsonrpc.Error](err)
	if e == nil {
		return 0
	}
	return e.Code
}

func TestSessionsAreResources(t *testing.T) {
	b := start(t)
	ctx := natstest.Context(t)
	for _, era := range eras {
		t.Run(era, func(t *testing.T) {
			s := b.connect(t, era, sdk.ClientOptions{})
			name := "res-" + era
			call(t, s, "ask", map[string]any{"text": `call math:evaluate {"expression":"6*7"}`, "session": name})
			call(t, s, "ask", map[string]any{"text": "hello", "session": name})
			list, err := s.ListResources(ctx, nil)
			if err != nil || len(list.Resources) == 0 || list.Resources[0].URI != "skandha://sessions/main/"+name {
				t.Fatalf("%+v, %v", list, err)
			}
			res, err := s.ReadResource(ctx, &sdk.ReadResourceParams{URI: list.Resources[0].URI})
			if err != nil {
				t.Fatal(err)
			}
			var got mcp.Session
			if err := json.Unmarshal([]byte(res.Contents[0].Text), &got); err != nil || len(got.Turns) != 2 ||
				got.Turns[0].Answer != "echo: hello" || !strings.Contains(got.Turns[1].Answer, "42") ||
				len(got.Turns[1].Steps) < 2 || got.Turns[1].By != "ui-ann" {
				t.Errorf("%v, read %s", err, res.Contents[0].Text)
			}
			page := call(t, s, "read_session", map[string]any{"session": name, "limit": 1})
			if err := json.Unmarshal(page.raw, &got); err != nil || len(got.Turns) != 1 || got.Next == "" {
				t.Fatalf("%v, a page is %s", err, page.raw)
			}
			page = call(t, s, "read_session", map[string]any{"session": name, "limit": 1, "before": got.Next})
			if !strings.Contains(string(page.raw), "42") || strings.Contains(string(page.raw), "echo: hello") {
				t.Errorf("the next page is %s", page.raw)
			}
			if tools := call(t, s, "list_tools", nil); !strings.Contains(string(tools.raw), `"math:evaluate"`) {
				t.Errorf("the agent's tools are %s", tools.raw)
			}
			templates, err := s.ListResourceTemplates(ctx, nil)
			if err != nil || len(templates.ResourceTemplates) != 2 {
				t.Errorf("%+v, %v", templates, err)
			}
		})
	}
}

func TestPagesOfSessions(t *testing.T) {
	b := start(t)
	s := b.connect(t, earlier, sdk.ClientOptions{})
	const many = 55 // a page has 50
	for i := range many {
		if _, err := b.backend.Submit(natstest.Context(t), transporttest.Principal(),
			contract.Submission{Ref: transporttest.Main(fmt.Sprint("p", i)), Text: "hi"}); err != nil {
			t.Fatal(err)
		}
	}
	natstest.Eventually(t, "all sessions are listed once", func() bool {
		seen := map[string]bool{}
		for r, err := range s.Resources(natstest.Context(t), nil) {
			if err != nil || seen[r.URI] {
				return false // one that was used meanwhile is further up
			}
			seen[r.URI] = true
		}
		return len(seen) == many
	})
	_, err := s.ListResources(natstest.Context(t), &sdk.ListResourcesParams{Cursor: "garbage"})
	if code(err) != jsonrpc.CodeInvalidParams {
		t.Errorf("a wrong cursor is answered %v", err)
	}
}

// The files of a session are resources, whose URIs have no paths.
func TestArtifactsAreResources(t *testing.T) {
	b := start(t)
	ctx := natstest.Context(t)
	s := b.connect(t, earlier, sdk.ClientOptions{})
	call(t, s, "ask", map[string]any{"text": "hello", "session": "files"})
	put := func(name string, data []byte) {
		if err := b.backend.Client().Journal.PutArtifact(ctx, "main/files/"+name, data); err != nil {
			t.Fatal(err)
		}
	}
	put("t1/../odd näme.txt", []byte("some text"))
	put("picture.png", []byte("\x89PNG\r\n\x1a\n\x00"))
	put("page.html", []byte("<html><script>"))
	var got mcp.Session
	if err := json.Unmarshal(call(t, s, "read_session", map[string]any{"session": "files"}).raw, &got); err != nil ||
		len(got.Artifacts) != 3 {
		t.Fatalf("%v, %+v", err, got.Artifacts)
	}
	for _, a := range got.Artifacts {
		res, err := s.ReadResource(ctx, &sdk.ReadResourceParams{URI: a.URI})
		if err != nil {
			t.Fatalf("%s: %v", a.URI, err)
		}
		c := res.Contents[0]
		switch {
		case strings.HasSuffix(a.Name, ".txt"):
			if c.Text != "some text" {
				t.Errorf("%s is %+v", a.Name, c)
			}
		case strings.HasSuffix(a.Name, ".png"):
			if c.MIMEType != "image/png" || len(c.Blob) == 0 {
				t.Errorf("%s is %+v", a.Name, c)
			}
		case c.MIMEType != "text/plain": // a client must not render it
			t.Errorf("%s is %+v", a.Name, c)
		}
	}
}

// What a principal may not see is answered as what does not exist.
func TestRights(t *testing.T) {
	b := serve(t, turntest.Start(t), mcp.Config{})
	ann := b.connect(t, earlier, sdk.ClientOptions{})
	call(t, ann, "ask", map[string]any{"text": "hello", "session": "secret"})
	w := call(t, ann, "ask", map[string]any{"text": needsApproval, "session": "secret"}).answer

	only := bob()
	only.Agents = []subject.Agent{"other"}
	b.As(only)
	for _, era := range eras {
		s := b.connect(t, era, sdk.ClientOptions{ElicitationHandler: answers("approve")})
		ctx := natstest.Context(t)
		for _, pair := range [][2]string{
			{"skandha://sessions/main/secret", "skandha://sessions/main/nothing"},
			{"skandha://sessions/main/secret/artifacts/YQ", "skandha://sessions/main/nothing/artifacts/YQ"},
		} {
			_, see := s.ReadResource(ctx, &sdk.ReadResourceParams{URI: pair[0]})
			_, none := s.ReadResource(ctx, &sdk.ReadResourceParams{URI: pair[1]})
			if see == nil || none == nil || strings.ReplaceAll(see.Error(), "secret", "nothing") != none.Error() ||
				code(see) != jsonrpc.CodeInvalidParams {
				t.Errorf("answered %v and %v", see, none)
			}
		}
		for _, tool := range []string{"read_session", "cancel"} {
			see := call(t, s, tool, map[string]any{"agent": "main", "session": "secret"})
			none := call(t, s, tool, map[string]any{"agent": "main", "session": "nothing"})
			if !see.isError || see.text != none.text {
				t.Errorf("%s: %q and %q", tool, see.text, none.text)
			}
		}
		got := call(t, s, "wait", map[string]any{"handle": w.Handle})
		if !got.isError || strings.Contains(got.text, "secret") {
			t.Errorf("got %+v", got)
		}
		list, err := s.ListResources(ctx, nil)
		if err != nil || slices.ContainsFunc(list.Resources, func(r *sdk.Resource) bool {
			return !strings.HasPrefix(r.URI, "skandha://sessions/other/")
		}) {
			t.Errorf("%+v, %v", list, err)
		}
		if got := call(t, s, "ask", map[string]any{"text": "hello"}); got.isError || got.answer.Agent != "other" {
			t.Errorf("its own agent answers %+v", got)
		}
	}

	// Every right is needed for itself
	b.As(bob(contract.See))
	s := b.connect(t, later, sdk.ClientOptions{})
	if got := call(t, s, "ask", map[string]any{"text": "hi"}); !got.isError || !strings.Contains(got.text, `"talk"`) {
		t.Errorf("without the right to talk: %+v", got)
	}
	b.As(bob(contract.Talk))
	got := call(t, s, "read_session", map[string]any{"session": "secret"})
	if !got.isError || !strings.Contains(got.text, `"see"`) {
		t.Errorf("without the right to see: %+v", got)
	}
	b.As(bob(contract.See, contract.Talk))
	s = b.connect(t, later, sdk.ClientOptions{ElicitationHandler: answers("approve")})
	if got := call(t, s, "ask", map[string]any{"text": needsApproval}); got.answer.Outcome != "waiting" {
		t.Errorf("without the right to approve: %+v", got)
	}
	// The session of another principal is no session
	b.As(bob())
	const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	if got := b.post(t, ping, map[string]string{"Mcp-Session-Id": ann.ID()}); got.status != 404 {
		t.Errorf("another's session is answered %d %s", got.status, got.body)
	}
	b.As(contract.Principal{})
	if got := b.post(t, ping, nil); got.status != http.StatusUnauthorized {
		t.Errorf("without a principal it is answered %d", got.status)
	}
}

// URIs have one spelling each.
func TestURIs(t *testing.T) {
	id := base64.RawURLEncoding.EncodeToString([]byte("a/b"))
	for _, good := range []string{"skandha://sessions/main/s", "skandha://sessions/main/s/artifacts/" + id} {
		if !mcp.ParseURI(good) {
			t.Errorf("%s is refused", good)
		}
	}
	for _, bad := range []string{
		"", "skandha://sessions", "skandha://sessions/", "skandha://sessions/main", "skandha://sessions/main/",
		"skandha://sessions/main/s/", "skandha://sessions/../s", "skandha://sessions/main/..",
		"skandha://sessions/main/../../x", "skandha://sessions/main/%2e%2e", "skandha://sessions/main/a%2fb",
		"skandha://sessions//s", "SKANDHA://sessions/main/s",
		"skandha://sessions/main/s?x", "skandha://sessions/main/s#x",
		"skandha://user@sessions/main/s", "file:///etc/passwd",
		"skandha://sessions/main/s/artifacts/", "skandha://sessions/main/s/artifacts/../x",
		"skandha://sessions/main/s/artifacts/" + id + "=",
		"skandha://sessions/main/s/artifacts/a/b", "skandha://sessions/main/s/other/" + id,
		"skandha://sessions/main/s/artifacts/_w",
		"skandha://sessions/main/" + strings.Repeat("a", 65), "skandha://sessions/main/s\n", "skandha://sessions/main/ſ",
	} {
		if mcp.ParseURI(bad) {
			t.Errorf("%s is accepted", bad)
		}
	}
	for _, bad := range []string{
		"", ".", "...", "main.s.1", "main.s.1.", "main.s.0.a", "main.s.01.a", "main.s.-1.a",
		"main.s.1.a.b", "main.s.1.a/b", "../s.1.a.x",
		"main.s.99999999999999999999.a", "main.s.1." + strings.Repeat("a", 65), " main.s.1.a",
	} {
		if mcp.ParseHandle(bad) {
			t.Errorf("the handle %q is accepted", bad)
		}
	}
}
