package grant_test

import (
	"encoding/json"
	"strings"
	"testing"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/security/grant"
)

var (
	write = tool.Spec{Name: "file_system:write_file", Scope: []string{"path"}}
	web   = tool.Spec{Name: "http:request", Scope: []string{"method", "url"}}
	move  = tool.Spec{Name: "sandbox_fs:move", Scope: []string{"from", "to"}}
	mail  = tool.Spec{Name: "mail:send"}
)

type patterns = map[string]string

func args(t *testing.T, v any) json.RawMessage {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestWhatIsOffered(t *testing.T) {
	exact := []event.Grant{{Hash: "h"}}
	one := func(p patterns) []event.Grant { return []event.Grant{{Args: p}} }
	two := func(p, q patterns) []event.Grant { return []event.Grant{{Args: p}, {Args: q}} }
	path := func(p string) patterns { return patterns{"path": p} }
	for _, c := range []struct {
		name string
		spec tool.Spec
		args string
		want []event.Grant
	}{
		{"a tool without scope: exactly this call", mail, `{"to":"a"}`, exact},
		{
			"a file in a directory: it, and the directory", write, `{"path":"a/b.txt","content":"x"}`,
			two(path("a/b.txt"), path("a/*")),
		},
		{"deeper: the innermost directory alone", write, `{"path":"a/b/c.txt"}`, two(path("a/b/c.txt"), path("a/b/*"))},
		{"a file at the top: never the whole workspace", write, `{"path":"b.txt"}`, one(path("b.txt"))},
		{"an absolute path: itself alone", write, `{"path":"/etc/hosts"}`, one(path("/etc/hosts"))},
		{"a path that leads up: itself alone", write, `{"path":"a/../b"}`, one(path("a/../b"))},
		{"a path with an escape: itself alone", write, `{"path":"a%2fb/c"}`, one(path("a%2fb/c"))},
		{"another script", write, `{"path":"日本/語.txt"}`, two(path("日本/語.txt"), path("日本/*"))},
		{"a name with blanks", write, `{"path":"my files/a b.txt"}`, two(path("my files/a b.txt"), path("my files/*"))},
		{"a file called *: as a pattern it would be more", write, `{"path":"a/*"}`, exact},
		{"an invisible character: nobody sees what is granted", write, `{"path":"a/\u202etxt.exe"}`, exact},
		{"a control character", write, `{"path":"a/b\nc"}`, exact},
		{"a replacement character: programs read it differently", write, `{"path":"a/\ud800"}`, exact},
		{"a value that is too long", write, `{"path":"` + strings.Repeat("a", 600) + `"}`, exact},
		{"an argument that is absent", write, `{"content":"x"}`, exact},
		{"an argument that is null", write, `{"path":null}`, exact},
		{"an argument that is a number", write, `{"path":7}`, exact},
		{"an argument that is a list", write, `{"path":["a/b"]}`, exact},
		{"an argument twice", write, `{"path":"a/b","path":"c/d"}`, exact},
		{"an argument in other letters, too", write, `{"path":"a/b","PATH":"c/d"}`, exact},
		{"an argument in letters that fold", write, `{"path":"a/b","pa\u0054h":"c/d"}`, exact},
		{"only in other letters", write, `{"Path":"a/b"}`, exact},
		{
			"a URL: it, and its origin; the method stays", web, `{"method":"GET","url":"https://api.example.com/v1?x=1"}`,
			two(patterns{"method": "GET", "url": "https://api.example.com/v1?x=1"},
				patterns{"method": "GET", "url": "https://api.example.com/*"}),
		},
		{
			"a port is part of the origin", web, `{"method":"GET","url":"http://example.com:8080/"}`,
			two(patterns{"method": "GET", "url": "http://example.com:8080/"},
				patterns{"method": "GET", "url": "http://example.com:8080/*"}),
		},
		{
			"a URL with a user: itself alone", web, `{"method":"GET","url":"https://me@example.com/"}`,
			one(patterns{"method": "GET", "url": "https://me@example.com/"}),
		},
		{
			"another scheme: itself alone", web, `{"method":"GET","url":"ftp://example.com/a"}`,
			one(patterns{"method": "GET", "url": "ftp://example.com/a"}),
		},
		{"a URL without its method", web, `{"url":"https://example.com/"}`, exact},
		{
			"both ends of a move", move, `{"from":"a/x","to":"b/y"}`,
			two(patterns{"from": "a/x", "to": "b/y"}, patterns{"from": "a/*", "to": "b/*"}),
		},
		{
			"one end at the top stays as it is", move, `{"from":"a/x","to":"y"}`,
			two(patterns{"from": "a/x", "to": "y"}, patterns{"from": "a/*", "to": "y"}),
		},
		{
			"a wrapper never, whatever it declares",
			tool.Spec{Name: "shell:execute", Scope: []string{"command"}},
			`{"command":"ls"}`, exact,
		},
		{
			"a wrapper with an unknown name",
			tool.Spec{Name: "remote:run", Scope: []string{"host", "Command"}},
			`{"host":"h","Command":"rm a/b"}`, exact,
		},
		{"a wrapper in other letters", tool.Spec{Name: "Python:Execute", Scope: []string{"code"}}, `{"code":"1"}`, exact},
		{"a plan", tool.Spec{Name: "plan:execute", Scope: []string{"steps"}}, `{"steps":"x"}`, exact},
		{
			"whatever runs code",
			tool.Spec{Name: "ruby:run", Scope: []string{"code"}, Permissions: []string{"code.execute"}},
			`{"code":"1"}`, exact,
		},
		{
			"more scope than can be shown",
			tool.Spec{Name: "x", Scope: strings.Split("a b c d e f g h i", " ")},
			`{"a":"1","b":"1","c":"1","d":"1","e":"1","f":"1","g":"1","h":"1","i":"1"}`, exact,
		},
		{"arguments that are no object", write, `[]`, exact},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := grant.Offers(c.spec, json.RawMessage(c.args), "h", nil)
			if len(got) != len(c.want) {
				t.Fatalf("%+v, want %+v", got, c.want)
			}
			for i, w := range c.want {
				w.Tool, w.Spec = c.spec.Name, c.spec.Digest()
				if !grant.In(got[i:i+1], w) {
					t.Errorf("%+v, want %+v", got[i], w)
				}
				if !covers(got[i], c.spec, json.RawMessage(c.args), "h") {
					t.Errorf("%+v does not cover the call that it was offered for", got[i])
				}
			}
		})
	}
}

// A grant of a directory covers only what is below it, despite all attempts to escape.
func TestADirectoryIsNotLeft(t *testing.T) {
	g := event.Grant{Tool: write.Name, Spec: write.Digest(), Args: patterns{"path": "drafts/*"}}
	for path, want := range map[string]bool{
		"drafts/a.txt": true, "drafts/b/c.txt": true, "drafts/.hidden": true, "drafts/a b.txt": true, "drafts/ü.txt": true,
		"drafts/a..b": true,
		"drafts":      false, "drafts/": false, "draftsx/a": false, "draft/a": false, "a/drafts/b": false, "": false,
		"drafts/../secret": false, "drafts/..": false, "drafts/a/../../secret": false, "drafts/./a": false,
		"./drafts/a": false,
		"drafts//a":  false, "//drafts/a": false, "/drafts/a": false, "drafts/a/": false,
		"drafts/%2e%2e/secret": false, "drafts%2fa": false, "drafts/..%2fsecret": false, "drafts/%252e%252e/x": false,
		`drafts\a`: false, `drafts/..\secret`: false, `drafts/\..\x`: false,
		"Drafts/a": false, "DRAFTS/a": false, "drafts/.../x": false, "drafts/a.": false, "drafts/a ": false,
		"drafts/ /x": false, "drafts /a": false,
		"drafts/~/x": false, "~/drafts/a": false, "drafts/$HOME": false, "drafts/a:b": false, "c:/drafts/a": false,
		"drafts/a*": false, "drafts/a|b": false,
		"drafts/\u2024\u2024/x": false, "drafts／a": false, "drafts/．．/x": false, "drafts∕a": false,
		"drafts/a\u200b": false, "drafts/\u202ea": false,
		"drafts/a\x00b": false, "drafts/a\nb": false, "drafts\u00a0/a": false, "ｄrafts/a": false, "drafts/\xff": false,
		"drafts/\ufffd":    false,
		"https://drafts/a": false, "drafts/" + strings.Repeat("a", 600): false,
	} {
		if got := covers(g, write, args(t, patterns{"path": path, "content": "x"}), ""); got != want {
			t.Errorf("%q: covered %t, want %t", path, got, want)
		}
	}
}

func TestAnOriginIsNotLeft(t *testing.T) {
	g := event.Grant{
		Tool: web.Name, Spec: web.Digest(), Args: patterns{"method": "GET", "url": "https://api.example.com/*"},
	}
	for url, want := range map[string]bool{
		"https://api.example.com/": true, "https://api.example.com": true, "https://api.example.com/a/b?c=d#e": true,
		"https://api.example.com/../x": false, "https://api.example.com/a@b": true,
		"https://api.example.com/%2f%2fevil.com": false,
		"https://api.example.com//evil.com/x":    false, "https://api.example.com/%0d%0aHost:evil": false,
		"https://api.example.com/a%20b": true,
		"http://api.example.com/":       false, "HTTPS://api.example.com/": false, "https://API.example.com/": false,
		"https://api.example.com./":    false,
		"https://api.example.com:443/": false, "https://api.example.com:8443/": false, "https://api.example.com:/": false,
		"https://api.example.com.evil.com/": false, "https://evil.com/api.example.com/": false, "https://example.com/": false,
		"https://x.api.example.com/":  false,
		"https://me@api.example.com/": false, "https://api.example.com@evil.com/": false,
		"https://api.example.com:x@evil.com/":  false,
		"https://api.example.com%2f@evil.com/": false, "https://api.example.com%00.evil.com/": false,
		"https://api%2eexample.com/":         false,
		`https://api.example.com\@evil.com/`: false, `https://api.example.com\.evil.com/`: false,
		`https:\\api.example.com\`: false, `https://api.example.com/\evil`: false,
		"https://api.example.com?x": false, "https://api.example.com#x": false, "https:/api.example.com/": false,
		"https:///api.example.com/": false, "//api.example.com/": false,
		" https://api.example.com/": false, "https://api.example.com/ ": false, "https://api.example.com\t/": false,
		"ht\ntps://api.example.com/":     false,
		"https://api.example.com\u3002/": false, "https://аpi.example.com/": false, "https://api。example.com/": false,
		"https://api.example.com\u200b/": false,
		"https://api..example.com/":      false, "https://-api.example.com/": false, "https://[::1]/": false,
		"javascript:https://api.example.com/": false, "": false,
		"https://api.example.com/%zz": false, "https://api.example.com/\x7f": false,
	} {
		if got := covers(g, web, args(t, patterns{"method": "GET", "url": url}), ""); got != want {
			t.Errorf("%q: covered %t, want %t", url, got, want)
		}
	}
}

func TestAGrantCoversItsToolAndArgumentsAlone(t *testing.T) {
	get := patterns{"method": "GET", "url": "https://a.example/*"}
	for _, c := range []struct {
		name string
		g    event.Grant
		spec tool.Spec
		args string
		want bool
	}{
		{"the tool", event.Grant{Tool: "http:request", Args: get}, web, `{"method":"GET","url":"https://a.example/x"}`, true},
		{
			"arguments without scope do not matter",
			event.Grant{Tool: "http:request", Args: get},
			web,
			`{"method":"GET","url":"https://a.example/x","body":"b"}`, true,
		},
		{
			"another method",
			event.Grant{Tool: "http:request", Args: get},
			web, `{"method":"POST","url":"https://a.example/x"}`,
			false,
		},
		{
			"the method in other letters",
			event.Grant{Tool: "http:request", Args: get},
			web,
			`{"method":"get","url":"https://a.example/x"}`, false,
		},
		{"no method", event.Grant{Tool: "http:request", Args: get}, web, `{"url":"https://a.example/x"}`, false},
		{
			"two methods",
			event.Grant{Tool: "http:request", Args: get},
			web,
			`{"method":"GET","method":"POST","url":"https://a.example/x"}`, false,
		},
		{
			"a second URL in other letters",
			event.Grant{Tool: "http:request", Args: get},
			web,
			`{"method":"GET","url":"https://a.example/x","URL":"https://evil.com/"}`, false,
		},
		{
			"another tool",
			event.Grant{Tool: "http:other", Args: get},
			web, `{"method":"GET","url":"https://a.example/x"}`,
			false,
		},
		{
			"a grant that binds less than the scope",
			event.Grant{Tool: "http:request", Args: patterns{"url": "https://a.example/*"}},
			web,
			`{"method":"GET","url":"https://a.example/x"}`, false,
		},
		{
			"a grant that binds something else, too",
			event.Grant{Tool: "http:request", Args: patterns{"method": "GET", "url": "https://a.example/*", "body": ""}},
			web,
			`{"method":"GET","url":"https://a.example/x","body":""}`, false,
		},
		{
			"a tool whose scope has grown",
			event.Grant{Tool: write.Name, Args: patterns{"path": "a/*"}},
			tool.Spec{Name: write.Name, Scope: []string{"path", "mode"}},
			`{"path":"a/b","mode":"x"}`, false,
		},
		{
			"a tool whose scope has gone",
			event.Grant{Tool: write.Name, Args: patterns{"path": "a/*"}},
			tool.Spec{Name: write.Name},
			`{"path":"a/b"}`, false,
		},
		{
			"a tool that runs code by now",
			event.Grant{Tool: write.Name, Args: patterns{"path": "a/*"}},
			tool.Spec{Name: write.Name, Scope: []string{"path"}, Permissions: []string{"code.execute"}},
			`{"path":"a/b"}`, false,
		},
		{"a grant of nothing", event.Grant{Tool: write.Name}, write, `{"path":"a/b"}`, false},
		{"a grant of nothing, of a tool without scope", event.Grant{Tool: mail.Name}, mail, `{}`, false},
		{"an empty grant", event.Grant{}, tool.Spec{}, `{}`, false},
		{"a star is no pattern", event.Grant{Tool: write.Name, Args: patterns{"path": "*"}}, write, `{"path":"a"}`, false},
		{"nothing above a star", event.Grant{Tool: write.Name, Args: patterns{"path": "/*"}}, write, `{"path":"/a"}`, false},
		{
			"a scheme above a star",
			event.Grant{Tool: web.Name, Args: patterns{"method": "GET", "url": "https:///*"}},
			web,
			`{"method":"GET","url":"https://a.example/"}`, false,
		},
		{
			"a directory that is none",
			event.Grant{Tool: write.Name, Args: patterns{"path": "a/../*"}},
			write,
			`{"path":"a/../b"}`, false,
		},
		{
			"a literal, bytes alike",
			event.Grant{Tool: write.Name, Args: patterns{"path": "a/b"}},
			write, `{"path":"a/b"}`,
			true,
		},
		{
			"a literal, written with an escape",
			event.Grant{Tool: write.Name, Args: patterns{"path": "a/b"}},
			write,
			`{"path":"a\u002fb"}`, true,
		},
		{
			"a literal, another way to say it",
			event.Grant{Tool: write.Name, Args: patterns{"path": "a/b"}},
			write,
			`{"path":"./a/b"}`, false,
		},
		{
			"a scope that is run by now",
			event.Grant{Tool: "remote:run", Args: patterns{"command": "rm a/*"}},
			tool.Spec{Name: "remote:run", Scope: []string{"command"}},
			`{"command":"rm a/b c/d"}`, false,
		},
		{"exactly this call", event.Grant{Tool: mail.Name, Hash: "h"}, mail, `{"to":"a"}`, true},
		{"exactly another call", event.Grant{Tool: mail.Name, Hash: "g"}, mail, `{"to":"a"}`, false},
		{
			"a hash and arguments: it is neither",
			event.Grant{Tool: write.Name, Hash: "h", Args: patterns{"path": "a/*"}},
			write, `{"path":"a/b"}`, false,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.g.Spec = c.spec.Digest()
			if got := covers(c.g, c.spec, json.RawMessage(c.args), "h"); got != c.want {
				t.Errorf("covered %t, want %t", got, c.want)
			}
			c.g.Spec = c.spec.Digest()
			if _, found := grant.Find([]event.Grant{{Tool: "other", Hash: "h"}, c.g}, c.spec, json.RawMessage(c.args),
				"h", nil); found != c.want {
				t.Errorf("found %t, want %t", found, c.want)
			}
		})
	}
}

// A grant applies to the tool that was shown: not to another one with its name, and to
// none if the grant predates the digest of the tool.
func TestAGrantIsForOneTool(t *testing.T) {
	for what, spec := range map[string]tool.Spec{
		"of a plugin":         {Name: write.Name, Scope: write.Scope, Plugin: "evil"},
		"with another text":   {Name: write.Name, Scope: write.Scope, Description: "surely the same"},
		"with another schema": {Name: write.Name, Scope: write.Scope, Args: json.RawMessage(`{}`)},
	} {
		call := json.RawMessage(`{"path":"a/b"}`)
		for _, g := range grant.Offers(write, call, "h", nil) {
			if !covers(g, write, call, "h") || covers(g, spec, call, "h") {
				t.Errorf("%s: %+v", what, g)
			}
			if g.Spec = ""; covers(g, write, call, "h") {
				t.Errorf("without a digest: %+v", g)
			}
		}
	}
}

// For any call: the offered grants cover it, and a wide grant covers no value that a
// program could read as one outside.
func FuzzOffers(f *testing.F) {
	for _, s := range []string{
		"a/b", "a/../b", "https://h/p", "https://h", "/*", "a/*", "", "a//b", "https://u@h/", "\xff", "a/.", "https://h:80/x",
	} {
		f.Add(s, "a/c")
		f.Add("a/c", s)
	}
	f.Fuzz(func(t *testing.T, first, then string) {
		call := func(p string) json.RawMessage { return args(t, patterns{"path": p}) }
		for _, g := range grant.Offers(write, call(first), "h", nil) {
			if !covers(g, write, call(first), "h") {
				t.Fatalf("%+v does not cover %q", g, first)
			}
			if g.Hash != "" || then == first || !covers(g, write, call(then), "i") {
				continue
			}
			pattern := g.Args["path"]
			base, wide := strings.CutSuffix(pattern, "/*")
			if !wide || then != base && !strings.HasPrefix(then, base+"/") {
				t.Fatalf("%q covers %q", pattern, then)
			}
			if strings.Contains(base, "://") {
				continue
			}
			for part := range strings.SplitSeq(then, "/") {
				if part == "" || part == "." || part == ".." || strings.ContainsAny(part, "%\\:\x00") {
					t.Fatalf("%q covers %q", pattern, then)
				}
			}
		}
	})
}

func BenchmarkFind(b *testing.B) {
	var all []event.Grant
	for range grant.Max {
		all = append(all, event.Grant{Tool: write.Name, Spec: write.Digest(), Args: patterns{"path": "drafts/of/somebody/*"}})
	}
	call := json.RawMessage(`{"path":"drafts/of/me/a.txt","content":"Lorem ipsum"}`)
	b.ReportAllocs()
	for b.Loop() {
		grant.Find(all, write, call, "h", nil)
	}
}

// covers reports whether the grant covers a call with the hash.
func covers(g event.Grant, spec tool.Spec, args json.RawMessage, hash string) bool {
	_, found := grant.Find([]event.Grant{g}, spec, args, hash, nil)
	return found
}

// A grant covers no call that follows a text from outside which its request did not name.
func TestAGrantNamesWhatWasRead(t *testing.T) {
	call := json.RawMessage(`{"path":"a/b"}`)
	for _, c := range []struct {
		named, follows []string
		want           bool
	}{
		{nil, nil, true},
		{nil, []string{"web"}, false},
		{[]string{"web"}, []string{"web"}, true},
		{[]string{"web"}, nil, true},
		{[]string{"web"}, []string{"web", "email:a@example.org"}, false},
		{[]string{"web", "file"}, []string{"file"}, true},
	} {
		for _, spec := range []tool.Spec{write, mail} { // by patterns, and by the hash
			for _, g := range grant.Offers(spec, call, "h", c.named) {
				if _, found := grant.Find([]event.Grant{g}, spec, call, "h", c.follows); found != c.want {
					t.Errorf("%s, named %q, follows %q: covered %t", spec.Name, c.named, c.follows, found)
				}
			}
		}
	}
	a, b := event.Grant{Tool: "x", Hash: "h"}, event.Grant{Tool: "x", Hash: "h", After: []string{"web"}}
	if grant.In([]event.Grant{a}, b) {
		t.Error("a grant is taken for one that names more")
	}
}
