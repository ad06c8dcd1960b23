package shell

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/strictjson"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/core/loader"
	"skandha.dev/services/internal/audit"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/store"
)

// SessionInfo is one session, folded from the log on request.
type SessionInfo struct {
	State  *decide.State `json:"state"`
	Digest string        `json:"digest"`
}

func (c *Core) serve() ([]*bus.Responder, error) {
	see := map[string]func(*bus.Request) (any, error){
		coreapi.VerbTools:     c.serveTools,
		coreapi.VerbSessions:  c.serveSessions,
		coreapi.VerbSession:   c.serveSession,
		coreapi.VerbMessages:  c.serveMessages,
		coreapi.VerbStatus:    func(q *bus.Request) (any, error) { return c.Status(q.Context()), nil },
		coreapi.VerbMemory:    c.seeMemory,
		coreapi.VerbOutbox:    c.seeOutbox,
		coreapi.VerbSchedules: c.seeSchedules,
		coreapi.VerbOccur:     c.serveOccur,
		coreapi.VerbHooks:     func(*bus.Request) (any, error) { return c.plugins.Info(), nil },
	}
	administer := map[string]func(*bus.Request) (any, error){
		coreapi.VerbRefill:     c.serveRefill,
		coreapi.VerbIdentities: c.serveIdentities,
		coreapi.VerbAudit:      c.serveAudit,
		coreapi.VerbMemory:     c.serveMemory,
		coreapi.VerbOutbox:     c.serveOutbox,
		coreapi.VerbSchedules:  c.serveSchedules,
	}
	var out []*bus.Responder
	respond := func(subj, service string, f func(*bus.Request) (any, error)) error {
		r, err := c.bus.Respond(subj, service, service, func(q *bus.Request) { coreapi.Answer(q, f) })
		if err != nil {
			return fmt.Errorf("serving %s: %w", subj, err)
		}
		out = append(out, r)
		return nil
	}
	for service, verbs := range map[string]map[string]func(*bus.Request) (any, error){
		coreapi.ServiceName: see, coreapi.AdminName: administer,
	} {
		for verb, f := range verbs {
			if err := respond(subject.Service(service, verb), service, f); err != nil {
				return nil, err
			}
		}
	}
	// Rights depend on what the subject names.
	for subj, f := range map[string]func(*bus.Request) (any, error){
		subject.Call("*"): c.serveCall, subject.AllPasts: c.servePast, subject.SessionsOf("*"): c.serveSessionsOf,
	} {
		if err := respond(subj, coreapi.ServiceName, f); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// administered is the error for a request that changes something to a service that does not.
func administered(verb string) error {
	return bus.Errorf(bus.CodeDenied, "%s only lists; send changes to %s", subject.Service(coreapi.ServiceName, verb),
		subject.Service(coreapi.AdminName, verb))
}

// decodeQuery reads the body of a request.
func decodeQuery(body []byte, into any) error {
	if len(body) == 0 {
		return bus.Errorf(bus.CodeInvalidArgument, "query: the body is empty, want a JSON object")
	}
	if err := strictjson.Unmarshal(body, into); err != nil {
		return bus.Errorf(bus.CodeInvalidArgument, "query: %s", strictjson.Explain(err))
	}
	return nil
}

func (c *Core) serveTools(q *bus.Request) (any, error) {
	c.views.CatchUp(q.Context())
	stats, err := c.store.ToolStats(q.Context())
	if err != nil {
		return nil, fmt.Errorf("reading tool statistics: %w", err)
	}
	out := []coreapi.ToolInfo{}
	live := map[string]int{}
	for _, t := range c.dir.All() {
		live[t.Name] = len(out)
		out = append(out, coreapi.ToolInfo{Spec: t, Live: true, SuccessRate: store.ToolStat{}.SuccessRate()})
	}
	for _, st := range stats {
		i, ok := live[st.Tool]
		if !ok {
			i = len(out)
			out = append(out, coreapi.ToolInfo{Spec: tool.Spec{Name: st.Tool}})
		}
		t := &out[i]
		t.Used, t.Succeeded, t.Unknown = st.Used, st.Succeeded, st.Unknown
		t.SuccessRate, t.MeanLatencyMS = st.SuccessRate(), st.MeanLatency().Milliseconds()
	}
	return out, nil
}

// serveSessionsOf lists the sessions of the agent in the subject.
func (c *Core) serveSessionsOf(q *bus.Request) (any, error) {
	var ask coreapi.SessionsQuery
	if len(q.Data) > 0 {
		if err := decodeQuery(q.Data, &ask); err != nil {
			return nil, err
		}
	}
	of := strings.TrimPrefix(q.Subject, subject.SessionsOf(""))
	if ask.Agent != "" && ask.Agent != of {
		return nil, bus.Errorf(bus.CodeDenied, "query: agent: is %q, and the subject, which credentials fix, names %s", ask.Agent, of)
	}
	ask.Agent = of
	return c.listSessions(q, ask)
}

func (c *Core) serveSessions(q *bus.Request) (any, error) {
	var ask coreapi.SessionsQuery
	if len(q.Data) > 0 {
		if err := decodeQuery(q.Data, &ask); err != nil {
			return nil, err
		}
	}
	return c.listSessions(q, ask)
}

func (c *Core) listSessions(q *bus.Request, ask coreapi.SessionsQuery) (any, error) {
	if ask.Agent != "" {
		if _, err := subject.Parse[subject.Agent](ask.Agent); err != nil {
			return nil, bus.Errorf(bus.CodeInvalidArgument, "query: agent: %v", err)
		}
	}
	c.views.CatchUp(q.Context())
	page, next, err := c.store.ListSessions(q.Context(), ask.Agent, ask.Limit, ask.After)
	switch {
	case errors.Is(err, store.ErrInvalid):
		return nil, &bus.Error{
			Code: bus.CodeInvalidArgument, Message: "query: " + strings.TrimPrefix(err.Error(), store.ErrInvalid.Error()+": "),
		}
	case err != nil:
		return nil, fmt.Errorf("listing sessions: %w", err)
	}
	out := coreapi.SessionsPage{Next: next, Sessions: []coreapi.SessionRow{}}
	if view := c.refill.State(q.Context()); view.State != coreapi.ViewComplete {
		out.View = &view
	}
	for _, s := range page {
		if ask.Deleted != (s.Phase == loader.PhaseDeleted) {
			continue
		}
		out.Sessions = append(out.Sessions, coreapi.SessionRow{
			Ref:      subject.Ref{Agent: subject.Agent(s.Agent), Session: subject.Session(s.Session)},
			Revision: s.Rev, State: s.Phase, Title: s.Title, Turns: s.Turns, Updated: s.Updated, Above: s.Above,
		})
	}
	return out, nil
}

func (c *Core) serveSession(q *bus.Request) (any, error) {
	var ask subject.Ref
	if err := decodeQuery(q.Data, &ask); err != nil {
		return nil, err
	}
	ref, err := subject.ParseRef(string(ask.Agent), string(ask.Session))
	if err != nil {
		return nil, &bus.Error{Code: bus.CodeInvalidArgument, Message: err.Error()}
	}
	return c.folds.do(q.Context(), foldKey{coreapi.VerbSession, ref}, func(ctx context.Context) (any, error) {
		return c.info(ctx, ref)
	})
}

// info loads a session from the log.
func (c *Core) info(ctx context.Context, ref subject.Ref) (any, error) {
	s, err := c.loader.Load(ctx, ref, nil)
	var d *loader.Damage
	switch {
	case errors.As(err, &d):
		return nil, bus.Errorf(bus.CodeConflict, "the log of %s is damaged: %s; its next input locks it; "+
			"to reopen it, run skandha sessions repair", ref, d.Why)
	case errors.Is(err, decide.ErrNewer):
		return nil, c.newerError(ref, err)
	case err != nil:
		return nil, err
	}
	if s.Rev == 0 {
		return nil, &bus.Error{Code: bus.CodeNotFound, Message: fmt.Sprintf("no session %s", ref)}
	}
	return SessionInfo{s, s.Digest}, nil
}

// serveRefill rewrites one session in the view, or schedules that for all sessions.
func (c *Core) serveRefill(q *bus.Request) (any, error) {
	var ask coreapi.RefillQuery
	if err := decodeQuery(q.Data, &ask); err != nil {
		return nil, err
	}
	if ask.All {
		return announced(c, q, ask.Caller, audit.Entry{Verb: audit.Rewritten, What: "all sessions in the view"},
			func() (coreapi.RefillAnswer, error) { return coreapi.RefillAnswer{}, c.refill.Everything(q.Context()) })
	}
	ref, err := subject.ParseRef(string(ask.Agent), string(ask.Session))
	if err != nil {
		return nil, &bus.Error{Code: bus.CodeInvalidArgument, Message: err.Error()}
	}
	act := audit.Entry{Verb: audit.Rewritten, What: "the session in the view", Agent: ref.Agent, Session: ref.Session}
	return announced(c, q, ask.Caller, act, func() (any, error) {
		return c.folds.do(q.Context(), foldKey{coreapi.VerbRefill, ref}, func(ctx context.Context) (any, error) {
			return c.rewrite(ctx, ref)
		})
	})
}

// rewrite writes a session to the view again.
func (c *Core) rewrite(ctx context.Context, ref subject.Ref) (any, error) {
	s, err := c.refill.Refold(ctx, ref, false)
	if err != nil {
		return nil, fmt.Errorf("refilling %s: %w", ref, err)
	}
	if s.Rev == 0 {
		return nil, &bus.Error{Code: bus.CodeNotFound, Message: fmt.Sprintf("no session %s", ref)}
	}
	return coreapi.RefillAnswer{Revision: s.Rev}, nil
}

// newerError returns the error for a session that a newer core wrote, with what to do
// about it.
func (c *Core) newerError(ref subject.Ref, err error) error {
	if c.dir.NewestFold() > decide.FoldVersion {
		return bus.Errorf(bus.CodeUnavailable, "%s was written by a newer core (%v), which is running; try again", ref, err)
	}
	return bus.Errorf(bus.CodeConflict, "%s was written by a newer core (%v), and none is running; "+
		"its inputs wait for one; to continue without the newer core's commits, run skandha sessions repair", ref, err)
}

func (c *Core) seeOutbox(q *bus.Request) (any, error) { return c.queryOutbox(q, false) }

func (c *Core) serveOutbox(q *bus.Request) (any, error) { return c.queryOutbox(q, true) }

func (c *Core) queryOutbox(q *bus.Request, change bool) (any, error) {
	var ask coreapi.OutboxQuery
	if len(q.Data) > 0 {
		if err := decodeQuery(q.Data, &ask); err != nil {
			return nil, err
		}
	}
	if ask.Action != "" && !change {
		return nil, administered(coreapi.VerbOutbox)
	}
	return announced(c, q, ask.Caller, outboxAct(ask), func() (coreapi.OutboxPage, error) { return c.outbox.Query(q.Context(), ask) })
}

func (c *Core) serveIdentities(q *bus.Request) (any, error) {
	var ask coreapi.IdentitiesQuery
	if err := decodeQuery(q.Data, &ask); err != nil {
		return nil, err
	}
	if c.cfg.Identities != nil {
		return announced(c, q, ask.Caller, identityAct(ask), func() (coreapi.IdentitiesPage, error) {
			return c.cfg.Identities.Do(q.Context(), ask)
		})
	}
	if ask.Op != "" {
		return nil, bus.Errorf(bus.CodeUnavailable, "the bus of this system enforces no rights: who has its token may do everything; "+
			"run it without a token (skandha up), or with keys (make secrets)")
	}
	return coreapi.IdentitiesPage{Identities: []coreapi.Identity{}}, nil
}
