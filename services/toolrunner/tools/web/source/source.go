// Package source describes where information came from. The data of every result of
// web:search and web:fetch has the field "sources", a list of [Source]: by it, a page or a
// program lists what an answer rests on, without knowing the tool.
package source

import (
	"net/url"
	"strings"
	"time"

	"skandha.dev/services/internal/text"
)

// The limits of a source's fields, in bytes.
const (
	maxURL   = 2048
	maxTitle = 200
)

// Source is a page.
type Source struct {
	N         int    `json:"n,omitempty"` // its number among the results of a search, from 1
	Title     string `json:"title"`
	URL       string `json:"url"`                 // http or https
	Published string `json:"published,omitempty"` // YYYY-MM-DD
	Byline    string `json:"byline,omitempty"`    // the author
	Site      string `json:"site,omitempty"`      // the name of the site
	Snippet   string `json:"snippet,omitempty"`   // a piece of the page's text
	Engine    string `json:"engine,omitempty"`    // the search engine that found it
}

// New returns the source at a URL; false if a link to it would not be safe to show.
func New(title, address string) (Source, bool) {
	u, err := url.Parse(strings.TrimSpace(address))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || len(address) > maxURL {
		return Source{}, false
	}
	s := Source{Title: Line(title, maxTitle), URL: u.String()}
	if s.Title == "" {
		s.Title = u.Host
	}
	return s, true
}

// Line returns text as one line of at most n bytes of valid UTF-8.
func Line(s string, n int) string {
	return text.Cut(strings.Join(strings.Fields(strings.ToValidUTF8(s, "\uFFFD")), " "), n)
}

// dates are the formats in which the web writes a date, each from its beginning.
var dates = []string{time.DateOnly, time.RFC1123, time.RFC1123Z, "Jan 2, 2006", "January 2, 2006"}

// Date returns a date as YYYY-MM-DD; empty if it cannot be read.
func Date(s string) string {
	s = strings.TrimSpace(s)
	if len(s) > len(time.DateOnly) && (s[len(time.DateOnly)] == 'T' || s[len(time.DateOnly)] == ' ') {
		s = s[:len(time.DateOnly)]
	}
	for _, layout := range dates {
		if t, err := time.Parse(layout, s); err == nil {
			return t.Format(time.DateOnly)
		}
	}
	return ""
}
