package security_test

import (
	"encoding/json"
	"testing"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/core/security"
)

// matches reports whether a rule with the pattern for one argument matches.
func matches(t *testing.T, effect decide.Effect, name, pattern, args string) bool {
	t.Helper()
	fallback := decide.Deny
	if effect == decide.Deny {
		fallback = decide.Allow
	}
	p, err := security.New([]security.Rule{{Effect: fallback}, {Args: map[string]string{name: pattern}, Effect: effect}})
	if err != nil {
		t.Fatal(err)
	}
	r := p.Evaluate(decide.Access{
		Action: event.ActionCall, Resource: tool.Spec{Name: "x"}, Context: decide.Context{Args: json.RawMessage(args)},
	})
	return r.Effect == effect
}

func object(t *testing.T, name, value string) string {
	t.Helper()
	b, err := json.Marshal(map[string]string{name: value})
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// To allow, a wildcard matches only values that every program reads alike; to deny or to
// ask, every spelling of a value counts.
func TestAPathIsJudgedOnTheSafeSide(t *testing.T) {
	for _, c := range []struct {
		value         string
		allows, other bool // the rule for drafts/* matches: to allow; to deny or ask
	}{
		{"drafts/a.txt", true, true},
		{"drafts/b/c.txt", true, true},
		{"draft/a.txt", false, false},
		{"secret/a.txt", false, false},
		{"drafts/../secret/a.txt", false, true}, // as written, it is below drafts
		{"secret/../drafts/a.txt", false, true},
		{"./drafts/a.txt", false, true},
		{".//drafts///a.txt", false, true},
		{"/drafts/a.txt", false, true},
		{"drafts%2fa.txt", false, true},
		{"drafts%252fa.txt", false, true},
		{"%64rafts/a.txt", false, true},
		{`drafts\a.txt`, false, true},
		{"DRAFTS/a.txt", false, true},
		{" drafts/a.txt", false, true},
		{"dra\nfts/a.txt", false, true},
		{"drafts/a\u202e.txt", false, true},
		{"https://drafts/a", false, false},
		{"%44rafts/a.txt", false, true}, // a capital behind an escape
		{"%44rafts/a%zz.txt", false, true},
		{"%2544rafts/a.txt", false, true},
	} {
		if got := matches(t, decide.Allow, "path", "drafts/*", object(t, "path", c.value)); got != c.allows {
			t.Errorf("allow %q: %t, want %t", c.value, got, c.allows)
		}
		for _, e := range []decide.Effect{decide.Deny, decide.Ask} {
			if got := matches(t, e, "path", "drafts/*", object(t, "path", c.value)); got != c.other {
				t.Errorf("%s %q: %t, want %t", e, c.value, got, c.other)
			}
		}
	}
}

func TestAURLIsJudgedOnTheSafeSide(t *testing.T) {
	for _, c := range []struct {
		value         string
		allows, other bool // the rule for https://api.example.com/v1/* matches
	}{
		{"https://api.example.com/v1/x", true, true},
		{"https://api.example.com/v1/x?y=../z", true, true},
		{"https://api.example.com/v2/x", false, false},
		{"https://evil.com/v1/x", false, false},
		{"https://evil.com/https://api.example.com/v1/x", false, false},
		{"https://api.example.com.evil.com/v1/x", false, false},
		{"https://api.example.com@evil.com/v1/x", false, false},
		{"http://api.example.com/v1/x", false, false},
		{"https://api.example.com/v1/../admin", false, true},
		{"https://api.example.com/v2/../v1/x", false, true},
		{"https://api.example.com/v1/%2e%2e/admin", false, true},
		{"https://api.example.com//v1/x", false, true},
		{"https://api.example.com:443/v1/x", false, true},
		{"https://api.example.com./v1/x", false, true},
		{"https://me:pw@api.example.com/v1/x", false, true},
		{"HTTPS://API.example.com/v1/x", false, true},
		{`https:\\api.example.com\v1\x`, false, true},
		{"https:api.example.com/v1/x", false, true},
		{"https:///api.example.com/v1/x", false, true},
		{"https://api.example.com/v1/x\n", false, true},
		{"https://api.example.com:8443/v1/x", false, true}, // a rule without a port means each
		{"https://api.example.com.:443/v1/x", false, true},
		{"https://api.example.com../v1/x", false, true},
		{"https://%41pi.example.com/v1/x", false, true},
		{"https://good.com%2f@api.example.com/v1/x", false, true},
		{`https://good.com\@api.example.com/v1/x`, false, true},
		{"https://ａｐｉ.example.com/v1/x", false, true},
		{"https://api。example。com/v1/x", false, true},
		{"https://a\u00adpi.example.com/v1/x", false, true},
		{"https://api.example.com%2fv1/x%zz", false, true},
	} {
		if got := matches(t, decide.Allow, "url", "https://api.example.com/v1/*",
			object(t, "url", c.value)); got != c.allows {
			t.Errorf("allow %q: %t, want %t", c.value, got, c.allows)
		}
		if got := matches(t, decide.Deny, "url", "https://api.example.com/v1/*", object(t, "url", c.value)); got != c.other {
			t.Errorf("deny %q: %t, want %t", c.value, got, c.other)
		}
	}
	for value, want := range map[string]bool{
		"https://a.example.com/": true, "https://a.b.example.com/x/y": true, "https://evil.com/.example.com/": false,
		"https://evil.com#.example.com/": false,
		"https://evil.com?.example.com/": false, "https://example.com/": false,
	} {
		if got := matches(t, decide.Allow, "url", "https://*.example.com/*", object(t, "url", value)); got != want {
			t.Errorf("allow %q: %t, want %t", value, got, want)
		}
	}
	if !matches(t, decide.Deny, "url", "*evil.com*", object(t, "url", "https://EVIL.com/")) {
		t.Error("a host in capitals is not denied")
	}
}

// One host has many spellings; a rule that denies it matches all of them.
func TestAHostIsDeniedHoweverItIsWritten(t *testing.T) {
	for pattern, values := range map[string][]string{
		"http://127.0.0.1/*": {
			"http://127.0.0.1/", "http://127.0.0.1:8080/x", "http://127.1/", "http://2130706433/", "http://0x7f.0.0.1/",
			"http://0177.0.0.01/",
			"http://0x7f000001/", "http://[::ffff:127.0.0.1]/", "http://[::FFFF:7F00:1]:99/", "http://u:p@127.0.0.1/",
			"http://127.0.0.1./",
		},
		"http://[::1]/*": {
			"http://[::1]/", "http://[::1]:8080/x", "http://[0:0:0:0:0:0:0:1]/", "http://[0000::0001]/", "http://[::1%25lo]/",
			"http://me@[::1]/",
		},
		"http://[0:0::1]:80/*": {"http://[::1]/"},
		"https://bücher.example/*": {
			"https://xn--bcher-kva.example/", "https://BÜCHER.example/", "https://b%C3%BCcher.example/",
		},
		"https://evil.example:444/*": {"https://evil.example:444/", "https://EVIL.example.:444/x"},
	} {
		for _, v := range values {
			if !matches(t, decide.Deny, "url", pattern, object(t, "url", v)) {
				t.Errorf("%s lets %s through", pattern, v)
			}
		}
	}
	for value, pattern := range map[string]string{
		"http://127.0.0.2/":         "http://127.0.0.1/*",
		"http://[::2]/":             "http://[::1]/*",
		"https://evil.example/":     "https://evil.example:444/*",
		"https://evil.example:445/": "https://evil.example:444/*",
		"http://1.2.3.4.5/":         "http://1.2.3.5/*",
	} {
		if matches(t, decide.Deny, "url", pattern, object(t, "url", value)) {
			t.Errorf("%s denies %s", pattern, value)
		}
	}
	if !matches(t, decide.Deny, "n", "100", `{"n":1e2}`) || !matches(t, decide.Deny, "n", "100", `{"n":"100.0"}`) {
		t.Error("a number in another notation is not denied")
	}
}

// Reading any value terminates, and includes the value itself.
func FuzzForms(f *testing.F) {
	for _, v := range []string{
		"a", "%25%25", "http://[::1]:8/%2e", "https://ａ@b:c/", "http:", "https://\x00", "1e999", "http://1.2.3.4.5.6",
		"http://:80", "%",
	} {
		f.Add(v)
	}
	p, err := security.New([]security.Rule{{Effect: decide.Deny, Args: map[string]string{"url": "*x*"}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, v string) {
		r := p.Evaluate(decide.Access{
			Action: event.ActionCall, Context: decide.Context{Args: json.RawMessage(object(t, "url", "x"+v))},
		})
		if r.Effect != decide.Deny {
			t.Fatalf("%q is allowed", v)
		}
	})
}

func TestWhichArgumentCounts(t *testing.T) {
	for _, c := range []struct {
		name, pattern, args string
		allows, denies      bool
	}{
		{"a literal", "a/b", `{"path":"a/b"}`, true, true},
		{"a literal is no prefix", "a/b", `{"path":"a/bc"}`, false, false},
		{"a literal that is written otherwise", "a/b", `{"path":"./a/b"}`, false, true},
		{"absent", "*", `{"file":"a"}`, false, false},
		{"anything", "*", `{"path":"https://u@h/\u0000"}`, true, true},
		{"a number", "7", `{"path":7}`, true, true},
		{"a truth", "true", `{"path":true}`, true, true},
		{"a list: any to deny, none to allow", "a", `{"path":["b","a"]}`, false, true},
		{"deep below", "a", `{"path":{"x":[{"y":"a"}]}}`, false, true},
		{"an empty list has nothing in it", "*", `{"path":[]}`, false, false},
		{"anything in a list", "*", `{"path":["a"]}`, false, true},
		{"a list of one", "a", `{"path":["a"]}`, false, true},
		{"twice", "a", `{"path":"a","path":"b"}`, false, true},
		{"twice, the other way round", "a", `{"path":"b","path":"a"}`, false, true},
		{"twice the same", "a", `{"path":"a","path":"a"}`, false, true},
		{"in other letters", "a", `{"PATH":"a"}`, false, true},
		{"in both", "a", `{"path":"a","Path":"b"}`, false, true},
		{"a literal with capitals", "GET", `{"path":"GET"}`, true, true},
		{"a literal in other letters", "GET", `{"path":"get"}`, false, true},
		{"no object", "*", `[]`, false, false},
	} {
		if got := matches(t, decide.Allow, "path", c.pattern, c.args); got != c.allows {
			t.Errorf("%s: allowed %t, want %t", c.name, got, c.allows)
		}
		if got := matches(t, decide.Deny, "path", c.pattern, c.args); got != c.denies {
			t.Errorf("%s: denied %t, want %t", c.name, got, c.denies)
		}
	}
}
