package inspect

import (
	"context"
	"fmt"
	"slices"
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/audit"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/text"
	"skandha.dev/services/uibridge/contract"
	"skandha.dev/services/uibridge/request"
)

// The limits of listAudit.
const (
	defaultAudit = 50
	maxAudit     = 200
)

type auditQuery struct {
	Since, Until, By, Verb, Agent, Session string
	Limit                                  int
	Before                                 uint64
	Verify                                 bool
}

func (q *auditQuery) params() []request.Param {
	return []request.Param{
		{Name: "since", Into: &q.Since},
		{Name: "until", Into: &q.Until},
		{Name: "by", Into: &q.By},
		{Name: "verb", Into: &q.Verb},
		{Name: "agent", Into: &q.Agent},
		{Name: "session", Into: &q.Session},
		{Name: "limit", Into: &q.Limit},
		{Name: "before", Into: &q.Before},
		{Name: "verify", Into: &q.Verify},
	}
}

// listAudit returns a page of the audit log, the latest entries that match.
func (i *inspector) listAudit(ctx context.Context, _ contract.Principal, q auditQuery) (page coreapi.AuditPage, err error) {
	ask := coreapi.AuditQuery{
		By: q.By, Verb: audit.Verb(q.Verb), Agent: subject.Agent(q.Agent), Session: subject.Session(q.Session),
		Before: q.Before, Verify: q.Verify,
	}
	if q.Verb != "" && !slices.Contains(audit.Verbs(), ask.Verb) {
		return page, contract.Invalid("verb", fmt.Sprintf("is %q; want one of %v", text.Cut(q.Verb, 40), audit.Verbs()))
	}
	for name, id := range map[string]string{"agent": q.Agent, "session": q.Session} {
		if id != "" && !subject.Valid(id) {
			return page, contract.Invalid(name, notAnID)
		}
	}
	for name, into := range map[string]struct {
		text string
		at   *time.Time
	}{"since": {q.Since, &ask.Since}, "until": {q.Until, &ask.Until}} {
		if into.text == "" {
			continue
		}
		if *into.at, err = time.Parse(time.RFC3339, into.text); err != nil {
			return page, contract.Invalid(name, "want a time as of RFC 3339, such as 2026-05-01T07:00:00Z")
		}
	}
	if ask.Limit, err = bounded(q.Limit, defaultAudit, maxAudit); err != nil {
		return page, err
	}
	return page, i.client.Administer(ctx, coreapi.VerbAudit, ask, &page)
}
