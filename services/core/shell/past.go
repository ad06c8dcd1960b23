package shell

import (
	"cmp"
	"encoding/json"
	"fmt"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/coreapi"
)

// The bounds of a page of the past. A larger answer would be stored apart, where parties cannot read it.
const (
	pastCommits = 100
	maxPast     = 1000
	maxPastSize = 200 << 10 // bytes
)

// servePast answers with a page of the commits of the session in the subject.
func (c *Core) servePast(q *bus.Request) (any, error) {
	ref, err := subject.ParsePast(q.Subject)
	if err != nil {
		return nil, bus.Errorf(bus.CodeInvalidArgument, "%v", err)
	}
	var ask coreapi.PastQuery
	if len(q.Data) > 0 {
		if err := decodeQuery(q.Data, &ask); err != nil {
			return nil, err
		}
	}
	if ask.Limit < 0 || ask.Limit > maxPast {
		return nil, bus.Errorf(bus.CodeInvalidArgument, "query: limit: is %d, want 1 to %d", ask.Limit, maxPast)
	}
	limit := cmp.Or(ask.Limit, pastCommits)
	page, size := coreapi.PastPage{Commits: []coreapi.PastCommit{}}, 0
	for m, err := range c.retain.Messages(q.Context(), ref, ask.After) {
		if err != nil {
			return nil, fmt.Errorf("reading the past of %s: %w", ref, err)
		}
		if m.Subject != ref.Commit() {
			continue
		}
		is := coreapi.PastCommit{Sequence: m.Seq, Time: m.Time, Events: m.Data}
		if len(m.Data) > maxPastSize || !json.Valid(m.Data) {
			is.Events, is.Omitted = nil, len(m.Data)
		}
		if n := len(page.Commits); n > 0 && (n == limit || size+len(is.Events) > maxPastSize) {
			page.Next = page.Commits[n-1].Sequence
			break
		}
		page.Commits, size = append(page.Commits, is), size+len(is.Events)
	}
	return page, nil
}

// maxPageSize leaves room in a message of the smallest limit that a server has by default, with bodies in base64.
const maxPageSize = 512 << 10

// serveMessages answers with a page of the session's causes and commits. One that is larger than a page is a page.
func (c *Core) serveMessages(q *bus.Request) (any, error) {
	var ask coreapi.MessagesQuery
	if err := decodeQuery(q.Data, &ask); err != nil {
		return nil, err
	}
	ref, err := subject.ParseRef(string(ask.Agent), string(ask.Session))
	if err != nil {
		return nil, bus.Errorf(bus.CodeInvalidArgument, "query: %v", err)
	}
	if ask.Limit < 0 || ask.Limit > maxPast {
		return nil, bus.Errorf(bus.CodeInvalidArgument, "query: limit: is %d, want 1 to %d", ask.Limit, maxPast)
	}
	limit := cmp.Or(ask.Limit, pastCommits)
	page, size := coreapi.MessagesPage{Messages: []coreapi.Message{}}, 0
	for m, err := range c.retain.Messages(q.Context(), ref, ask.After) {
		if err != nil {
			return nil, fmt.Errorf("reading the messages of %s: %w", ref, err)
		}
		if n := len(page.Messages); n > 0 && (n == limit || size+len(m.Data) > maxPageSize) {
			page.Next = page.Messages[n-1].Sequence
			break
		}
		page.Messages = append(page.Messages, coreapi.Message{Sequence: m.Seq, Time: m.Time, Subject: m.Subject, Body: m.Data})
		size += len(m.Data)
	}
	return page, nil
}
