package markdown

import (
	"net/mail"
	"net/url"
	"regexp"
	"strings"

	"github.com/microcosm-cc/bluemonday"
)

// linkRel denies an opened page access to this one, and does not endorse it.
const linkRel = "noopener noreferrer nofollow"

// maxAddress is the length of the longest address that becomes a link, in bytes.
const maxAddress = 2048

// The form of addresses when the policy sees them: ASCII, escaped.
var (
	anyAddress = regexp.MustCompile(`^(?:https?://|mailto:|/v1/agents/)[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%]+$`)
	artifact   = regexp.MustCompile(
		`^/v1/agents/[A-Za-z0-9_~-]+/sessions/[A-Za-z0-9_~-]+/artifacts/[A-Za-z0-9\-._~!$&'()*+,;=:@%/]+$`)
	classes    = regexp.MustCompile(`^language-[A-Za-z0-9][A-Za-z0-9+#._-]{0,31}$`)
	onlyRel    = regexp.MustCompile(`^` + linkRel + `$`)
	onlyBlank  = regexp.MustCompile(`^_blank$`)
	alignments = regexp.MustCompile(`^(?:left|center|right)$`)
	number     = regexp.MustCompile(`^[0-9]{1,9}$`)
)

// newPolicy allows what the renderer writes, and nothing else.
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

// linkAddress returns the address for use in a link. It reports false if the scheme is
// not http, https or mailto, if the address hides its target behind a user name, or if
// it points to this site but not to an artifact.
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

// isArtifact reports whether the address is that of a session's artifact on this site,
// and stays below the artifacts in every reader's interpretation.
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
