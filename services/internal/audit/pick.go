package audit

import (
	"bytes"
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/secret"
	"skandha.dev/services/internal/text"
)

// The lengths, in bytes, of texts in entries. Of an input there is its beginning: enough to recognise it, and its hash
// to prove it. The session's log has the rest.
const (
	maxInput  = 80
	maxDetail = 300
)

// Identify returns who a writer is: a person behind the UI bridge, or a listener with its sender.
func Identify(w subject.Writer, from string) Who {
	if name, ok := strings.CutPrefix(string(w), string(subject.Person(""))); ok {
		return Who{Kind: Person, Name: name}
	}
	if subject.OwnWriter(w) {
		return Who{Kind: Core, Name: string(w)}
	}
	return Who{Kind: Listener, Name: string(w), From: from}
}

// named is who answered for a person: the person, if the configuration names them.
func named(w subject.Writer, from, person string) Who {
	who := Identify(w, from)
	if person == "" || who.Kind == Person {
		return who
	}
	return Who{Kind: Person, Name: person, Via: who.String()}
}

var core = Who{Kind: Core, Name: "core"}

// Pick returns the entries of a commit, without number, digests and position. body is the commit as it is stored.
func Pick(c event.Commit, seq uint64, body []byte) []Entry {
	p := picker{commit: c, source: Source{Sequence: seq, Digest: Digest(body)}}
	for i, v := range c.Header.Hooks {
		p.part = fmt.Sprintf("hooks[%d]", i)
		p.verdict(v)
	}
	visitor := event.Visitor{
		Perceived: p.perceived, ToolCallRequest: p.requested, ActApproved: p.approved, ActConfirmed: p.confirmed,
		Audited: p.audited, ActCompleted: p.completed, TurnFailed: p.failed, SessionLocked: p.locked, SessionReset: p.reset,
	}
	for i, e := range c.Events {
		if e.Type == event.TypeAudited && !bytes.Contains(e.Data, []byte(event.EffectDeny)) {
			continue // as most
		}
		p.part, p.turn = "events["+strconv.Itoa(i)+"]", e.Turn
		// A type or version that this core does not know is not audited.
		_ = visitor.Visit(e)
	}
	return p.out
}

type picker struct {
	commit event.Commit
	source Source
	part   string
	turn   string
	out    []Entry
}

func (p *picker) add(e Entry) {
	source := p.source
	source.Part = p.part
	e.Time, e.Agent, e.Session, e.Source = p.commit.Header.Now.UTC(), p.commit.Ref.Agent, p.commit.Ref.Session, &source
	e.Turn, e.Detail = cmp.Or(e.Turn, p.turn), Words(e.Detail)
	p.out = append(p.out, e)
}

// Words returns a text as entries have it: shortened, and without secrets as far as they are recognised.
func Words(s string) string { return text.Cut(secret.HideText(s), maxDetail) }

func (p *picker) verdict(v hook.Verdict) {
	if v.Verb != hook.DenyVerb {
		return
	}
	why := strings.TrimPrefix(v.Reason, string(v.Plugin)+": ") // By names it
	if v.Error != "" {
		why = "the plugin gave no valid answer, which denies: " + v.Error
	}
	p.add(Entry{By: Who{Kind: Plugin, Name: string(v.Plugin)}, Verb: Denied, What: string(v.Point), Call: v.Step, Detail: why})
}

func (p *picker) perceived(e event.Perceived) {
	if e.Disposition == event.FromQueue {
		return // it was picked when it was queued
	}
	verb, said := Asked, e.Text
	if t := p.commit.Header.Trigger; t.Sequence == e.Sequence && t.Cause == subject.Command {
		verb, said = Commanded, cmp.Or(e.Text, p.command())
	}
	p.add(Entry{
		By: Identify(e.Writer, e.From), Verb: verb, What: cmp.Or(string(e.Origin), e.Source), Turn: event.TurnID(e.Sequence),
		Detail: text.Cut(said, maxInput), Hash: Digest([]byte(said)),
	})
}

// command is the slash command that the commit ends.
func (p *picker) command() (name string) {
	for _, e := range p.commit.Events {
		_ = event.Visitor{Recorded: func(r event.Recorded) { name = cmp.Or(r.Input, "/"+r.Command) }}.Visit(e)
	}
	return name
}

func (p *picker) requested(e event.ToolCallRequest) {
	why := ""
	if e.SecurityWarning != nil {
		why = e.SecurityWarning.Message
	}
	if e.Approval != nil {
		why = e.Approval.Needs() + " (" + e.Approval.Rule + ")"
	}
	p.add(Entry{
		By: Who{Kind: Agent, Name: string(p.commit.Ref.Agent)}, Verb: Requested, What: e.ToolName, Call: e.ConfirmationID,
		Hash: e.Hash, Detail: why,
	})
}

func (p *picker) approved(e event.ActApproved) {
	p.add(Entry{
		By: named(e.By, e.From, e.Person), Verb: Approved, Call: e.Call, Hash: e.Hash,
		Detail: join(fmt.Sprintf("%d more must approve", e.Left), delegated(e.For), passkey(e.Passkey), e.Reason),
	})
}

func (p *picker) confirmed(e event.ActConfirmed) {
	verb := Refused
	switch e.Outcome {
	case event.Approved:
		verb = Approved
	case event.Expired:
		p.add(Entry{By: core, Verb: Expired, Call: e.Call, Hash: e.Hash, Detail: e.Reason})
		return
	}
	others, always := "", ""
	if len(e.Others) > 0 {
		others = "after " + strings.Join(e.Others, ", ")
	}
	if e.Always != nil {
		always = "for later calls, too"
	}
	p.add(Entry{
		By: named(e.By, e.From, e.Person), Verb: verb, Call: e.Call, Hash: e.Hash,
		Detail: join(others, delegated(e.For), passkey(e.Passkey), always, e.Reason),
	})
}

func delegated(by string) string {
	if by == "" {
		return ""
	}
	return "for " + by
}

func passkey(used bool) string {
	if used {
		return "with a passkey"
	}
	return ""
}

func join(parts ...string) string {
	var all []string
	for _, s := range parts {
		if s != "" {
			all = append(all, s)
		}
	}
	return strings.Join(all, "; ")
}

// audited picks what was denied. What was allowed is executed; what a hook denied is in its verdict.
func (p *picker) audited(e event.Audited) {
	if e.Effect != event.EffectDeny {
		return
	}
	what := e.Resource
	if e.Action == event.ActionConfirmation {
		what = "an answer by " + cmp.Or(e.Person, named(e.Principal, e.From, "").String())
	}
	p.add(Entry{By: core, Verb: Denied, What: what, Call: e.Call, Hash: e.Hash, Detail: join(e.Rule, e.Reason)})
}

func (p *picker) completed(e event.ActCompleted) {
	if e.Attempt == "" {
		return // it was given to nobody
	}
	outcome := "ok"
	if !e.Result.Success {
		outcome = "failed"
		if e.Result.Error != nil {
			outcome = string(e.Result.Error.Code)
		}
	}
	p.add(Entry{
		By: Who{Kind: Agent, Name: string(p.commit.Ref.Agent), Via: string(e.Runner)}, Verb: Executed, What: e.Tool, Call: e.Call,
		Hash: e.Hash, Detail: outcome,
	})
}

func (p *picker) failed(e event.TurnFailed) {
	if e.Code != event.FailCancelled && e.Code != event.FailInterrupted {
		return
	}
	by := core
	if t := p.commit.Header.Trigger; t.Kind == event.ByCause {
		by = Identify(t.Writer, "")
	}
	p.add(Entry{By: by, Verb: Cancelled, Turn: event.TurnID(e.Sequence), Detail: join(string(e.Code), e.Reason)})
}

func (p *picker) locked(e event.SessionLocked) {
	p.add(Entry{By: core, Verb: Locked, Detail: e.Reason})
}

func (p *picker) reset(e event.SessionReset) {
	p.add(Entry{By: Identify(e.By, ""), Verb: Reset})
}
