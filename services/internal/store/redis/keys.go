package redis

import (
	"net/url"
	"strings"
)

// keyspace is the prefix of all keys.
type keyspace string

func (p keyspace) agents() string { return string(p) + "agents" }
func (p keyspace) marks() string  { return string(p) + "marks" }

func (p keyspace) sessions(agent string) string { return p.of(agent) + "sessions" }
func (p keyspace) recorded(agent string) string { return p.of(agent) + "recorded" }
func (p keyspace) tools(agent string) string    { return p.of(agent) + "tools" }
func (p keyspace) session(agent, session string) string {
	return p.of(agent) + "session:" + session
}

// of begins an agent's keys; escaped, so that the hash tag ends where it should.
func (p keyspace) of(agent string) string {
	return string(p) + "{" + url.PathEscape(agent) + "}:"
}

// pattern matches every agent's keys for SCAN, and none of a longer prefix.
func (p keyspace) pattern() string {
	return globEscaper.Replace(string(p)) + "{*"
}

var globEscaper = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`)
