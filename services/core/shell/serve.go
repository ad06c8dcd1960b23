package shell

import (
	"encoding/json"
	"fmt"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/executor"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/internal/store"
)

// ServiceName is core's name on the bus: service.core.<verb>, and the responder
// of its answers.
const ServiceName = "core"

// The verbs that any core replica answers.
const (
	VerbTools    = "tools"    // -> []ToolInfo
	VerbSessions = "sessions" // SessionsQuery -> SessionsPage
	VerbSession  = "session"  // subject.Ref -> SessionInfo
	VerbStatus   = "status"   // -> Status
	VerbHooks    = "hooks"    // -> HooksInfo
)

// ToolInfo is a tool with its statistics over all sessions.
type ToolInfo struct {
	tool.Spec
	Live          bool    `json:"live"` // an executor offers it now
	Used          int64   `json:"used"`
	Succeeded     int64   `json:"succeeded"`
	Unknown       int64   `json:"unknown"`      // outcome_unknown
	SuccessRate   float64 `json:"success_rate"` // Beta(1,1) prior: 0.5 until it is used
	MeanLatencyMS int64   `json:"mean_latency_ms"`
}

// SessionsQuery asks for a page of sessions.
type SessionsQuery struct {
	Agent string `json:"agent,omitempty"` // empty: all
	Limit int    `json:"limit,omitempty"`
	After string `json:"after,omitempty"` // cursor of the page before
}

// SessionsPage is a page of sessions, most recently updated first.
type SessionsPage struct {
	Sessions []SessionRow `json:"sessions"`
	Next     string       `json:"next,omitempty"`
}

// SessionRow is a session in a listing.
type SessionRow struct {
	subject.Ref
	Revision uint64    `json:"revision"`
	State    string    `json:"state"`
	Title    string    `json:"title"`
	Turns    int       `json:"turns"`
	Updated  time.Time `json:"updated"`
}

// SessionInfo is one session, folded from the log when it was asked for.
type SessionInfo struct {
	State  *decide.State `json:"state"`
	Digest string        `json:"digest"`
}

// Status is what a core knows of the system.
type Status struct {
	Instance  subject.Instance        `json:"instance"`
	Version   string                  `json:"version"`
	Agents    []subject.Agent         `json:"agents"`
	Open      int                     `json:"open_sessions"`
	Executors []executor.Announcement `json:"executors"`
	Counters  map[string]int64        `json:"counters"`
}

func (c *Core) serve() ([]*bus.Responder, error) {
	handlers := map[string]func(*bus.Request) (any, error){
		VerbTools:    c.serveTools,
		VerbSessions: c.serveSessions,
		VerbSession:  c.serveSession,
		VerbStatus:   func(*bus.Request) (any, error) { return c.status(), nil },
		VerbHooks:    func(*bus.Request) (any, error) { return c.plugins.info(), nil },
	}
	var out []*bus.Responder
	for verb, f := range handlers {
		r, err := c.bus.Respond(subject.Service(ServiceName, verb), ServiceName, ServiceName, func(q *bus.Request) {
			answer(q, f)
		})
		if err != nil {
			return nil, fmt.Errorf("serving %s: %w", verb, err)
		}
		out = append(out, r)
	}
	return out, nil
}

func answer(q *bus.Request, f func(*bus.Request) (any, error)) {
	v, err := f(q)
	if err == nil {
		var b []byte
		if b, err = json.Marshal(v); err == nil {
			err = q.Reply(b)
		}
	}
	if err != nil {
		// The asker is gone if this fails, too.
		_ = q.ReplyError(err)
	}
}

func (c *Core) serveTools(q *bus.Request) (any, error) {
	stats, err := c.store.ToolStats(q.Context())
	if err != nil {
		return nil, fmt.Errorf("reading tool statistics: %w", err)
	}
	out := []ToolInfo{}
	live := map[string]int{}
	for _, t := range c.dir.All() {
		live[t.Name] = len(out)
		out = append(out, ToolInfo{Spec: t, Live: true, SuccessRate: store.ToolStat{}.SuccessRate()})
	}
	for _, st := range stats {
		i, ok := live[st.Tool]
		if !ok {
			i = len(out)
			out = append(out, ToolInfo{Spec: tool.Spec{Name: st.Tool}})
		}
		t := &out[i]
		t.Used, t.Succeeded, t.Unknown = st.Used, st.Succeeded, st.Unknown
		t.SuccessRate, t.MeanLatencyMS = st.SuccessRate(), st.MeanLatency().Milliseconds()
	}
	return out, nil
}

func (c *Core) serveSessions(q *bus.Request) (any, error) {
	var ask SessionsQuery
	if len(q.Data) > 0 {
		if err := json.Unmarshal(q.Data, &ask); err != nil {
			return nil, &bus.Error{Code: bus.CodeInvalidArgument, Message: "query: " + err.Error()}
		}
	}
	page, next, err := c.store.ListSessions(q.Context(), ask.Agent, ask.Limit, ask.After)
	if err != nil {
		return nil, fmt.Errorf("listing sessions: %w", err)
	}
	out := SessionsPage{Next: next, Sessions: []SessionRow{}}
	for _, s := range page {
		out.Sessions = append(out.Sessions, SessionRow{
			Ref:      subject.Ref{Agent: subject.Agent(s.Agent), Session: subject.Session(s.Session)},
			Revision: s.Rev, State: s.Phase, Title: s.Title, Turns: s.Turns, Updated: s.Updated,
		})
	}
	return out, nil
}

func (c *Core) serveSession(q *bus.Request) (any, error) {
	var ask subject.Ref
	if err := json.Unmarshal(q.Data, &ask); err != nil {
		return nil, &bus.Error{Code: bus.CodeInvalidArgument, Message: "query: " + err.Error()}
	}
	ref, err := subject.ParseRef(string(ask.Agent), string(ask.Session))
	if err != nil {
		return nil, &bus.Error{Code: bus.CodeInvalidArgument, Message: err.Error()}
	}
	s, err := c.loader.Load(q.Context(), ref, nil)
	if err != nil {
		return nil, err
	}
	if s.Rev == 0 {
		return nil, &bus.Error{Code: bus.CodeNotFound, Message: fmt.Sprintf("no session %s", ref)}
	}
	return SessionInfo{s, s.Digest}, nil
}

// Counters are what this core has done since it started, by name.
func (c *Core) Counters() map[string]int64 {
	return map[string]int64{
		"commits": c.stats.Commits.Load(), "fence_lost": c.stats.FenceLost.Load(),
		"deliveries": c.stats.Deliveries.Load(), "panics": c.stats.Panics.Load(),
		"poison": c.stats.Poison.Load(), "snapshots": c.stats.Snapshots.Load(),
		"dead_letters": c.stats.DeadLetters.Load(), "mismatches": c.stats.Mismatches.Load(), "open_sessions": int64(c.open()),
	}
}

func (c *Core) status() Status {
	st := Status{
		Instance: c.bus.Instance(), Version: c.cfg.Version, Open: c.open(), Executors: c.dir.Executors(), Counters: c.Counters(),
	}
	for a := range c.cfg.Agents {
		st.Agents = append(st.Agents, a)
	}
	return st
}
