package redis

import "net/url"

// keyspace is the prefix of all keys.
type keyspace string

func (p keyspace) agents() string { return string(p) + "agents" }
func (p keyspace) marks() string  { return string(p) + "marks" }

func (p keyspace) coverage() string { return string(p) + "coverage" }
func (p keyspace) lease() string    { return string(p) + "lease" }

func (p keyspace) sessions(agent string) string { return p.of(agent) + "sessions" }
func (p keyspace) counted(agent string) string  { return p.of(agent) + "counted" }
func (p keyspace) tools(agent string) string    { return p.of(agent) + "tools" }
func (p keyspace) session(agent, session string) string {
	return p.of(agent) + "session:" + session
}

// before returns the key that earlier versions used, which recorded only revisions.
func (p keyspace) before(agent string) string { return p.of(agent) + "recorded" }

// of returns the prefix of an agent's keys. The agent is escaped, so that the hash tag
// ends where it should.
func (p keyspace) of(agent string) string {
	return string(p) + "{" + url.PathEscape(agent) + "}:"
}
