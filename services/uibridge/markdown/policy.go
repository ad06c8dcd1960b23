package markdown

import (
	"net/mail"
	"net/url"
	"regexp"
	"strings"

	"github.com/microcosm-cc/bluemonday"
)

// linkRel keeps a page that is opened from reaching back, and from being vouched for.
const linkRel = "noopener noreferrer nofollow"

// maxAddress is the longest address that is a link, in bytes.
const maxAddress = 2048

// What addresses look like when the policy sees them: in ASCII, escaped.
var (
	anyAddress = regexp.MustCompile(`^(?:https?://|mailto:|/v1/agents/)[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%]+$`)
	artifact   = regexp.MustCompile(`^/v1/agents/[A-Za-z0-9_~-]+/sessions/[A-Za-z0-9_~-]+/artifacts/[A-Za-z0-9\-._~!$&'()*+,;=:@%/]+$`)
	classes    = regexp.MustCompile(`^language-[A-Za-z0-9][A-Za-z0-9+#._-]{0,31}$`)
	onlyRel    = regexp.MustCompile(`^` + linkRel + `$`)
	onlyBlank  = regexp.MustCompile(`^_blank$`)
	alignments = regexp.MustCompile(`^(?:left|center|right)$`)
	number     = regexp.MustCompile(`^[0-9]{1,9}$`)
)

// newPolicy lets through what the renderer writes, and nothing else.
func newPolicy() *bluemonday.Policy {
	p := bluemonday.NewPolicy()
	p.AllowElements(
		"p", "br", "hr", "h1", "h2", "h3", "h4", "h5", "h6", "em", "strong", "del", "blockquote",
		"ul", "ol", "li", "pre", "code", "table", "thead", "tbody", "tr", "th", "td",
	)
	p.AllowAttrs("start").Matching(number).OnElements("ol")
	p.AllowAttrs("class").Matching(classes).OnElements("code")
	p.AllowAttrs("align").Matching(alignments).OnElements("th", "td")
	p.AllowAttrs("href").Matching(anyAddress).OnElements("a")
	p.AllowAttrs("rel").Matching(onlyRel).OnElements("a")
	p.AllowAttrs("target").Matching(onlyBlank).OnElements("a")
	p.AllowAttrs("src").Matching(artifact).OnElements("img")
	p.AllowAttrs("alt").OnElements("img")
	p.AllowAttrs("title").OnElements("a", "img")
	return p
}

// linkAddress is the address as a link may carry it. It is none if the scheme is
// another one than http, https and mailto, if it hides where it leads to behind a
// user's name, or if it points to this site elsewhere than at an artifact.
func linkAddress(s string) (string, bool) {
	if len(s) > maxAddress {
		return "", false
	}
	if isArtifact(s) {
		return s, true
	}
	u, err := url.Parse(s)
	if err != nil {
		return "", false
	}
	switch u.Scheme { // in lower case
	case "http", "https":
		if u.Host == "" || u.User != nil || u.Opaque != "" {
			return "", false
		}
	case "mailto":
		if _, err := mail.ParseAddress(u.Opaque); err != nil {
			return "", false
		}
	default:
		return "", false
	}
	s = u.String()
	return s, anyAddress.MatchString(s)
}

// isArtifact reports whether the address is one of a session's artifacts, on this
// very site, and stays below them whoever reads it.
func isArtifact(s string) bool {
	if len(s) > maxAddress || !artifact.MatchString(s) {
		return false
	}
	path, err := url.PathUnescape(s)
	if err != nil || strings.ContainsAny(path, "\\\x00") {
		return false
	}
	for part := range strings.SplitSeq(path, "/") {
		if part == ".." || part == "." {
			return false
		}
	}
	return true
}
