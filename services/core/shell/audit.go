package shell

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/auditor"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/core/registrar"
	"skandha.dev/services/internal/audit"
	"skandha.dev/services/internal/buildinfo"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/registry"
	"skandha.dev/services/internal/senses"
)

var itself = audit.Who{Kind: audit.Core, Name: "core"}

func (c *Core) newAuditor() *auditor.Auditor {
	a := auditor.Config{Bus: c.bus, Log: c.log, Marks: c.store, Facts: c.facts, Head: c.cfg.Head}
	if d := c.cfg.RightsDigest; d != "" {
		a.Start = auditor.Fact{Of: "configuration", Is: d, Entry: audit.Entry{
			By: itself, Verb: audit.Configured, What: "people, policy, approvals, hooks, permissions", Hash: d,
			Detail: "by core " + c.cfg.Version,
		}}
	}
	return auditor.New(a)
}

// observe is called with every commit of this core.
func (c *Core) observe(ref subject.Ref, commit event.Commit, s *decide.State) {
	c.views.Observe(ref, commit, s)
	c.auditor.Wake()
}

// announced writes into the audit log that somebody is about to do something, and does it. Without a verb it only
// does it.
func announced[A any](c *Core, q *bus.Request, by subject.Writer, e audit.Entry, do func() (A, error)) (answer A, err error) {
	if e.Verb == "" {
		return do()
	}
	service := string(q.Caller())
	e.By = audit.Identify(by, "")
	if e.By.Kind != audit.Person {
		e.By = audit.Who{Kind: audit.Operator, Name: cmp.Or(string(by), service, "unknown")}
	}
	e.By.Via = service
	n, err := c.auditor.Announce(q.Context(), e)
	if err != nil {
		return answer, bus.Errorf(bus.CodeUnavailable, "nothing was done, because the audit log cannot be written: %v", err)
	}
	answer, err = do()
	if err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(q.Context()), 5*time.Second)
		defer cancel()
		if failed := c.auditor.Failed(ctx, n, e, err); failed != nil {
			c.log.Error("the audit log does not say that an act failed", "entry", n, "error", failed)
		}
	}
	return answer, err
}

func outboxAct(q coreapi.OutboxQuery) audit.Entry {
	verbs := map[coreapi.OutboxAction]audit.Verb{coreapi.OutboxResend: audit.Resent, coreapi.OutboxDrop: audit.Dropped}
	return audit.Entry{Verb: verbs[q.Action], What: "message " + q.ID}
}

func scheduleAct(q coreapi.SchedulesQuery) audit.Entry {
	if q.Action != coreapi.ScheduleDelete {
		return audit.Entry{}
	}
	return audit.Entry{Verb: audit.Unscheduled, What: "schedule " + q.Name, Agent: q.Agent, Session: q.Session}
}

func memoryAct(q coreapi.MemoryQuery) audit.Entry {
	verbs := map[coreapi.MemoryOp]audit.Verb{
		coreapi.MemoryStore: audit.Remembered, coreapi.MemoryCorrect: audit.Corrected, coreapi.MemoryForget: audit.Forgotten,
	}
	e := audit.Entry{Verb: verbs[q.Op], What: "memory " + cmp.Or(q.ID, "(new)"), Agent: q.Agent}
	if q.Text != "" {
		e.Hash = audit.Digest([]byte(q.Text)) // the text may have to be forgotten
	}
	return e
}

func identityAct(q coreapi.IdentitiesQuery) audit.Entry {
	verbs := map[coreapi.IdentityOp]audit.Verb{
		coreapi.IdentityInvite: audit.Invited, coreapi.IdentityRotate: audit.Rotated, coreapi.IdentityRevoke: audit.Revoked,
	}
	e := audit.Entry{Verb: verbs[q.Op], What: "identity " + string(q.Name)}
	if q.Op == coreapi.IdentityInvite && q.Charter != nil {
		e.What = "identity " + string(q.Charter.Name)
		charter, _ := json.Marshal(q.Charter) // of plain fields
		e.Detail = string(charter)
	}
	return e
}

// operated announces what an operator does with a plugin.
func (c *Core) operated(q *bus.Request, ask registrar.PluginRequest, do func() error) error {
	verbs := map[registrar.Op]audit.Verb{
		registrar.OpSuspend: audit.Suspended, registrar.OpResume: audit.Resumed, registrar.OpUnload: audit.Unloaded,
	}
	e := audit.Entry{Verb: verbs[ask.Op], What: "plugin " + string(ask.Plugin), Detail: ask.Reason}
	_, err := announced(c, q, ask.Caller, e, func() (struct{}, error) { return struct{}{}, do() })
	return err
}

// sameRefusal is how long a refusal is not noted again: a client may repeat what is refused.
const sameRefusal = 10 * time.Minute

// maxRefusals is how many are remembered.
const maxRefusals = 1000

// manifestRefused notes that a manifest declares more than the charter of its plugin grants.
func (c *Core) manifestRefused(ctx context.Context, m plugin.Manifest, why plugin.Problems) {
	c.refused(ctx, "registration of plugin "+string(m.Name), why.Error())
}

// muted notes that the server takes no inputs of a listener for a while.
func (c *Core) muted(ctx context.Context, name subject.Identity) {
	c.refused(ctx, "inputs of listener "+string(name), "muted, because it sends inputs faster than they are answered")
}

// refused notes a refusal that is no decision on a call.
func (c *Core) refused(ctx context.Context, what, why string) {
	key := what + " " + why
	if at, noted := c.denied.Get(key); noted && time.Since(at) < sameRefusal {
		return
	}
	if _, err := c.auditor.Announce(ctx, audit.Entry{By: itself, Verb: audit.Denied, What: what, Detail: why}); err != nil {
		c.log.Warn("the audit log does not say that something was refused", "what", what, "error", err)
		return
	}
	c.denied.Add(key, time.Now())
}

// facts are the states of plugins, and of the switches of cameras and microphones.
func (c *Core) facts(ctx context.Context) (out []auditor.Fact, err error) {
	for _, p := range c.Plugins().Plugins() {
		out = append(out, pluginFact(p))
	}
	switches, err := senses.Switches(ctx, c.bus)
	for name, s := range switches {
		out = append(out, auditor.Fact{Of: "switch/" + string(name), Is: fmt.Sprint(s.Revision), Entry: audit.Entry{
			Time: s.At.UTC(), By: audit.Identify(subject.Writer(s.By), ""), Verb: audit.Switched, What: "listener " + string(name),
			Detail: map[bool]string{true: "on", false: "off"}[s.On],
		}})
	}
	return out, err
}

func pluginFact(p *registry.Plugin) auditor.Fact {
	e := audit.Entry{
		By: audit.Who{Kind: audit.Plugin, Name: string(p.Name())}, Verb: audit.Registered, What: "plugin " + string(p.Name()), Hash: p.Hash,
		Detail: "version " + p.Manifest.Version,
	}
	switch {
	case p.Suspended != nil && p.Suspended.By == registry.ByCore:
		e.By, e.Verb, e.Detail = itself, audit.Suspended, p.Suspended.Reason
	case p.State == plugin.Gone && p.Lost:
		e.By, e.Verb, e.Detail = itself, audit.Lost, "no replica sends heartbeats"
	case p.State == plugin.Gone:
		e.Verb, e.Detail = audit.Unregistered, ""
	}
	return auditor.Fact{Of: "plugin/" + string(p.Name()), Is: string(e.Verb) + " " + p.Hash, Entry: e}
}

// serveAudit lists entries of the audit log.
func (c *Core) serveAudit(q *bus.Request) (any, error) {
	var ask coreapi.AuditQuery
	if len(q.Data) > 0 {
		if err := decodeQuery(q.Data, &ask); err != nil {
			return nil, err
		}
	}
	return c.auditor.Query(q.Context(), ask)
}

// auditFaults returns the problems of the audit log.
func (c *Core) auditFaults() (out []coreapi.Fault) {
	if why, since := c.auditor.Damage(); why != "" {
		out = append(out, coreapi.Fault{What: coreapi.FaultAudit, Since: since.UTC(), Message: fmt.Sprintf(
			"the audit log was damaged: %s; find out who could write to the bus's streams or its disk, and run `%s audit verify`",
			why, buildinfo.Command())})
	}
	if why := c.auditor.Unpublished(); why != "" {
		out = append(out, coreapi.Fault{What: coreapi.FaultAudit, Message: "the head of the audit log is not published: " + why +
			"; correct audit.head, or make it reachable"})
	}
	return out
}
