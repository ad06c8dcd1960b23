package markdown_test

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// allowed are the elements that may come out, with their attributes.
var allowed = map[string][]string{
	"p": nil, "br": nil, "hr": nil, "h1": nil, "h2": nil, "h3": nil, "h4": nil, "h5": nil, "h6": nil,
	"em": nil, "strong": nil, "del": nil, "blockquote": nil, "ul": nil, "ol": {"start"}, "li": nil,
	"pre": nil, "code": {"class"}, "table": nil, "thead": nil, "tbody": nil, "tr": nil,
	"th": {"align"}, "td": {"align"}, "a": {"href", "title", "rel", "target"}, "img": {"src", "alt", "title"},
}

// values say what an attribute may be, as a browser reads it; title and alt are free.
var values = map[string]*regexp.Regexp{
	"start": regexp.MustCompile(`^[0-9]{1,9}$`),
	"class": regexp.MustCompile(`^language-[A-Za-z0-9+#._-]+$`),
	"align": regexp.MustCompile(`^(left|center|right)$`),
	"rel":   regexp.MustCompile(`^noopener noreferrer nofollow$`),
	"target": regexp.MustCompile(
		`^_blank$`),
	"src": regexp.MustCompile(`^/v1/agents/[^/]+/sessions/[^/]+/artifacts/[^?#\\]+$`),
}

// unsafe says what of the page that a browser makes of the HTML must not be there.
func unsafe(page string) []string {
	nodes, err := html.ParseFragment(strings.NewReader(page),
		&html.Node{Type: html.ElementNode, Data: "div", DataAtom: atom.Div})
	if err != nil {
		return []string{"it can't be parsed: " + err.Error()}
	}
	var bad []string
	for _, n := range nodes {
		bad = append(bad, unsafeNode(n, 0)...)
	}
	return bad
}

func unsafeNode(n *html.Node, links int) []string {
	var bad []string
	switch n.Type {
	case html.TextNode:
	case html.ElementNode:
		attrs, ok := allowed[n.Data]
		if !ok || n.Namespace != "" {
			return []string{"element " + n.Namespace + ":" + n.Data}
		}
		bad = append(bad, unsafeAttributes(n, attrs)...)
		if n.Data == "a" {
			links++
		}
	default:
		return []string{"a node that is neither an element nor text"}
	}
	if links > 1 {
		bad = append(bad, "a link in a link")
	}
	for c := n.FirstChild; c != nil; c = c.NextSibling {
		bad = append(bad, unsafeNode(c, links)...)
	}
	return bad
}

func unsafeAttributes(n *html.Node, names []string) []string {
	var bad []string
	got := map[string]string{}
	for _, a := range n.Attr {
		got[a.Key] = a.Val
		if !slices.Contains(names, a.Key) || a.Namespace != "" {
			bad = append(bad, n.Data+" has an attribute "+a.Key)
		}
		if want := values[a.Key]; want != nil && !want.MatchString(a.Val) {
			bad = append(bad, n.Data+" has "+a.Key+"="+a.Val)
		}
	}
	switch n.Data {
	case "a":
		if why := unsafeLink(got["href"]); why != "" {
			bad = append(bad, why)
		}
		if got["rel"] == "" || got["target"] == "" {
			bad = append(bad, "a link without rel or target")
		}
	case "img":
		if got["src"] == "" || climbs(got["src"]) {
			bad = append(bad, "a picture from "+got["src"])
		}
	}
	return bad
}

func unsafeLink(href string) string {
	u, err := url.Parse(href)
	switch {
	case err != nil:
		return "a link to " + href + ": " + err.Error()
	case (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil:
	case u.Scheme == "mailto" && strings.Contains(u.Opaque, "@"):
	case u.Scheme == "" && values["src"].MatchString(href) && !climbs(href):
	default:
		return "a link to " + href
	}
	return ""
}

// climbs reports whether the path leaves its directory, however it is written.
func climbs(path string) bool {
	plain, err := url.PathUnescape(path)
	return err != nil ||
		slices.Contains(strings.FieldsFunc(plain, func(r rune) bool { return r == '/' || r == '\\' }), "..")
}

// The check finds what it is there for.
func TestStructureCheckFindsWhatIsUnsafe(t *testing.T) {
	for _, page := range []string{
		`<script>x</script>`, `<p onclick=x>y</p>`, `<p style="x">y</p>`, `<p id=x>y</p>`, `<svg></svg>`,
		`<a href="javascript:x" rel="noopener noreferrer nofollow" target="_blank">y</a>`,
		`<a href="https://x.example">y</a>`, `<img src="https://x.example/y.png">`, `<img alt="x">`, `<!-- x -->`,
		`<code class="x">y</code>`, `<code class="language-x y">z</code>`,
		`<img src="/v1/agents/a/sessions/s/artifacts/%2e%2e/x">`, `<input type=checkbox disabled>`,
		`<a href="https://a@x.example" rel="noopener noreferrer nofollow" target="_blank">y</a>`,
		`<a href="/v1/auth/me" rel="noopener noreferrer nofollow" target="_blank">y</a>`,
	} {
		if len(unsafe(page)) == 0 {
			t.Errorf("nothing was found in %s", page)
		}
	}
	if bad := unsafe(`<p>x <a href="https://x.example" title="&quot;" rel="noopener noreferrer nofollow" target="_blank">y</a></p>`); len(bad) > 0 {
		t.Errorf("got %q for a page that is in order", bad)
	}
}
