package inspect

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/client"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/providerapi"
	"skandha.dev/services/internal/text"
	"skandha.dev/services/uibridge/contract"
	"skandha.dev/services/uibridge/request"
)

// Deps are the package's dependencies.
type Deps struct {
	Client *client.Client // asks core, and reads the log and the artifacts
	Log    *slog.Logger   // for internal errors; default: discarded
}

// askWait is the timeout of a request.
const askWait = 10 * time.Second

type inspector struct {
	client *client.Client
	log    *slog.Logger
}

func newInspector(d Deps) *inspector {
	log := d.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &inspector{client: d.Client, log: log}
}

// Methods returns listSessions, getSession, listTools, listProviders, listPlugins, getHooks,
// getStatus, pluginAction, listTurns, getTimeline, listArtifacts, listMemories, searchMemories,
// addMemory, correctMemory, forgetMemory, listListeners, switchListener, listOutbox, outboxAction,
// listAudit, listIdentities and revokeIdentity.
// They are safe for concurrent use.
func Methods(d Deps) []contract.Method {
	i := newInspector(d)
	return []contract.Method{
		method(i, "listSessions", contract.See, i.listSessions),
		method(i, "getSession", contract.See, i.getSession),
		method(i, "listTools", contract.See, i.listTools),
		method(i, "listProviders", contract.See, i.listProviders),
		method(i, "listPlugins", contract.See, everywhere(contract.See, pass(i, coreapi.VerbPlugins))),
		method(i, "getHooks", contract.See, everywhere(contract.See, pass(i, coreapi.VerbHooks))),
		method(i, "getStatus", contract.See, i.getStatus),
		method(i, "pluginAction", contract.Administer, everywhere(contract.Administer, i.pluginAction)),
		method(i, "listTurns", contract.See, i.listTurns),
		method(i, "getTimeline", contract.See, i.getTimeline),
		method(i, "listArtifacts", contract.See, i.listArtifacts),
		method(i, "listMemories", contract.See, i.listMemories),
		method(i, "searchMemories", contract.See, i.searchMemories),
		method(i, "addMemory", contract.Talk, i.addMemory),
		method(i, "correctMemory", contract.Talk, i.correctMemory),
		method(i, "forgetMemory", contract.Talk, i.forgetMemory),
		method(i, "listListeners", contract.See, everywhere(contract.See, i.listListeners)),
		method(i, "switchListener", contract.Administer, everywhere(contract.Administer, i.switchListener)),
		method(i, "listOutbox", contract.See, i.listOutbox),
		method(i, "outboxAction", contract.Administer, i.outboxAction),
		method(i, "listAudit", contract.Administer, everywhere(contract.Administer, i.listAudit)),
		method(i, "listIdentities", contract.Administer, everywhere(contract.Administer, i.listIdentities)),
		method(i, "revokeIdentity", contract.Administer, everywhere(contract.Administer, i.revokeIdentity)),
	}
}

// query holds a method's parameters.
type query[Q any] interface {
	*Q
	params() []request.Param
}

// method decodes the parameters, limits the time and converts errors. It also checks the
// right, so that a caller that forgets to check it reveals nothing.
func method[Q, A any, P query[Q]](
	i *inspector, name string, right contract.Right, call func(context.Context, contract.Principal, Q) (A, error),
) contract.Method {
	return contract.Method{
		Name: name, Right: right,
		Call: func(ctx context.Context, p contract.Principal, params json.RawMessage) (any, error) {
			if err := p.Require(right, ""); err != nil {
				return nil, err
			}
			var q Q
			if err := request.Decode(params, P(&q).params()...); err != nil {
				return nil, err
			}
			ctx, cancel := context.WithTimeout(ctx, askWait)
			defer cancel()
			a, err := call(ctx, p, q)
			if err != nil {
				return nil, i.refusal(name, err)
			}
			return a, nil
		},
	}
}

// none is the query of a method without parameters.
type none struct{}

func (*none) params() []request.Param { return nil }

// reach checks the names of a session, and that the principal may access its agent.
func reach(p contract.Principal, agent, session string) (subject.Ref, error) {
	ref, err := request.Ref(agent, session)
	if err != nil {
		return subject.Ref{}, err
	}
	return ref, p.Require(contract.See, ref.Agent)
}

// notAnID is the error for an invalid id.
const notAnID = "want 1 to 64 characters of A-Z a-z 0-9 _ -"

// pass returns core's answer to a request without parameters.
func pass(i *inspector, verb string) func(context.Context, contract.Principal, none) (json.RawMessage, error) {
	return func(ctx context.Context, _ contract.Principal, _ none) (json.RawMessage, error) {
		var answer json.RawMessage
		return answer, i.client.Ask(ctx, verb, nil, &answer)
	}
}

// everywhere refuses a token that is limited to some agents: plugins and listeners serve all agents.
func everywhere[Q, A any](
	r contract.Right, call func(context.Context, contract.Principal, Q) (A, error),
) func(context.Context, contract.Principal, Q) (A, error) {
	return func(ctx context.Context, p contract.Principal, q Q) (a A, err error) {
		if err := p.Everywhere(r); err != nil {
			return a, err
		}
		return call(ctx, p, q)
	}
}

// listProviders returns the language models of all provider processes. What they cost together
// is not for a token that is limited to some agents.
func (i *inspector) listProviders(
	ctx context.Context, p contract.Principal, _ none,
) ([]providerapi.Report, error) {
	reports, err := i.client.Providers(ctx)
	if p.Everywhere(contract.See) != nil {
		for j := range reports {
			reports[j].Budget = nil
			if e := reports[j].Embedder; e != nil {
				e.Usage = nil
			}
		}
	}
	return reports, err
}

// listTools returns the tools of agents, without internal ones. The statistics cover all
// agents, so a token that is limited to some agents does not see them.
func (i *inspector) listTools(ctx context.Context, p contract.Principal, _ none) ([]coreapi.ToolInfo, error) {
	all := []coreapi.ToolInfo{}
	if err := i.client.Ask(ctx, coreapi.VerbTools, nil, &all); err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(t coreapi.ToolInfo) bool { return t.Internal })
	if p.Everywhere(contract.See) != nil {
		for n, t := range all {
			all[n] = coreapi.ToolInfo{Spec: t.Spec, Live: t.Live, SuccessRate: 0.5} // like a tool that was never used
		}
	}
	return all, nil
}

// The limits of listSessions.
const (
	defaultSessions = 50
	maxSessions     = 200
	maxSessionPages = 20 // maximum requests to core to find the sessions that may be seen
)

type sessionsQuery struct {
	Agent string
	Limit int
	After string
}

func (q *sessionsQuery) params() []request.Param {
	return []request.Param{
		{Name: "agent", Into: &q.Agent}, {Name: "limit", Into: &q.Limit}, {Name: "after", Into: &q.After},
	}
}

// listSessions returns a page of the sessions that the principal may see, most recently
// updated first. A page may be shorter than its limit; there are more if Next is set.
func (i *inspector) listSessions(
	ctx context.Context, p contract.Principal, q sessionsQuery,
) (coreapi.SessionsPage, error) {
	page := coreapi.SessionsPage{Sessions: []coreapi.SessionRow{}}
	if q.Agent != "" {
		if !subject.Valid(q.Agent) {
			return page, contract.Invalid("agent", notAnID)
		}
		if err := p.Require(contract.See, subject.Agent(q.Agent)); err != nil {
			return page, err
		}
	} else if len(p.Agents) == 1 {
		q.Agent = string(p.Agents[0])
	}
	limit, err := bounded(q.Limit, defaultSessions, maxSessions)
	if err != nil {
		return page, err
	}
	page.Next = q.After
	for range maxSessionPages {
		ask := coreapi.SessionsQuery{Agent: q.Agent, Limit: limit - len(page.Sessions), After: page.Next}
		var got coreapi.SessionsPage
		err := i.client.Ask(ctx, coreapi.VerbSessions, ask, &got)
		switch {
		case bus.CodeOf(err) == bus.CodeInvalidArgument && ask.After != "": // the other fields were checked
			return page, contract.Invalid("after", "invalid cursor; use `next` from the previous page")
		case err != nil:
			return page, err
		}
		for _, s := range got.Sessions {
			if p.Require(contract.See, s.Agent) == nil {
				page.Sessions = append(page.Sessions, s)
			}
		}
		if page.Next = got.Next; page.Next == "" || len(page.Sessions) >= limit {
			break
		}
	}
	return page, nil
}

// bounded returns the limit n, or the default if it is 0, and refuses n if it is out of range.
func bounded(n, standard, most int) (int, error) {
	switch {
	case n == 0:
		return standard, nil
	case n < 0 || n > most:
		return 0, contract.Invalid("limit", fmt.Sprintf("is %d; want 1 to %d", n, most))
	}
	return n, nil
}

type sessionQuery struct{ Agent, Session string }

func (q *sessionQuery) params() []request.Param {
	return []request.Param{{Name: "agent", Into: &q.Agent, Must: true}, {Name: "session", Into: &q.Session, Must: true}}
}

// getSession returns a session as core folds it: {state, digest}.
func (i *inspector) getSession(ctx context.Context, p contract.Principal, q sessionQuery) (json.RawMessage, error) {
	ref, err := reach(p, q.Agent, q.Session)
	if err != nil {
		return nil, err
	}
	var answer json.RawMessage
	return answer, i.client.Ask(ctx, coreapi.VerbSession, ref, &answer)
}

// getStatus returns what one core knows of the system. A token that is limited to some
// agents only gets what concerns these.
func (i *inspector) getStatus(ctx context.Context, p contract.Principal, _ none) (coreapi.Status, error) {
	var st coreapi.Status
	if err := i.client.Ask(ctx, coreapi.VerbStatus, nil, &st); err != nil {
		return st, err
	}
	hidden := func(a subject.Agent) bool { return p.Require(contract.See, a) != nil }
	st.Agents = slices.DeleteFunc(st.Agents, hidden)
	st.Guides = slices.DeleteFunc(st.Guides, func(t coreapi.GuideTrouble) bool { return hidden(t.Agent) })
	st.Faults = slices.DeleteFunc(st.Faults, func(f coreapi.Fault) bool { return f.Agent != "" && hidden(f.Agent) })
	if p.Everywhere(contract.See) != nil { // the rest is about the token's agents, or concerns everybody
		troubles := slices.DeleteFunc(st.Troubles,
			func(t coreapi.Trouble) bool { return t.Ref != subject.Ref{} && hidden(t.Agent) })
		st = coreapi.Status{
			Instance: st.Instance, Version: st.Version, Agents: st.Agents, Counters: map[string]int64{},
			View:   coreapi.View{State: st.View.State},
			Faults: st.Faults, Troubles: troubles, Guides: st.Guides,
		}
	}
	slices.Sort(st.Agents)
	return st, nil
}

// pluginAction is service.admin.plugin's request (schemas/service/core/plugin_request.json).
type pluginAction struct {
	Op     string         `json:"op"`
	Plugin string         `json:"plugin"`
	Force  bool           `json:"force,omitempty"`
	Reason string         `json:"reason,omitempty"`
	Caller subject.Writer `json:"caller,omitempty"`
}

func (q *pluginAction) params() []request.Param {
	return []request.Param{
		{Name: "op", Into: &q.Op, Must: true},
		{Name: "plugin", Into: &q.Plugin, Must: true},
		{Name: "force", Into: &q.Force},
		{Name: "reason", Into: &q.Reason},
	}
}

// maxReason limits the length of an operator's reason, in bytes.
const maxReason = 500

// pluginAction has core suspend, resume or unload a plugin, and returns the plugin's new
// state. The reason that core gets includes the principal.
func (i *inspector) pluginAction(ctx context.Context, p contract.Principal, q pluginAction) (json.RawMessage, error) {
	switch {
	case !slices.Contains([]string{"suspend", "resume", "unload"}, q.Op):
		return nil, contract.Invalid("op", fmt.Sprintf("is %q; want suspend, resume or unload", text.Cut(q.Op, 40)))
	case !subject.Valid(q.Plugin):
		return nil, contract.Invalid("plugin", notAnID)
	case len(q.Reason) > maxReason:
		return nil, contract.Invalid("reason", fmt.Sprintf("has %d bytes; the limit is %d", len(q.Reason), maxReason))
	case q.Force && q.Op != "unload":
		return nil, contract.Invalid("force", "only allowed with unload")
	}
	if q.Op == "resume" {
		q.Reason = ""
	} else {
		q.Reason = strings.TrimSuffix("by "+string(p.Writer)+": "+q.Reason, ": ")
	}
	q.Caller = p.Writer
	i.log.Info("plugin action requested", "op", q.Op, "plugin", q.Plugin, "by", p.Writer, "force", q.Force)
	var answer json.RawMessage
	return answer, i.client.Administer(ctx, coreapi.VerbPlugin, q, &answer)
}
