package auditor

import (
	"context"
	"errors"
	"slices"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/services/internal/audit"
	"skandha.dev/services/internal/coreapi"
)

const (
	defaultList = 100
	// What one request reads at most; the page says where it ended.
	maxBlocks = 5000
	maxRead   = 3 * time.Second
	maxAnswer = 4 << 20
)

// Query answers a request for entries. Errors are *[bus.Error].
func (a *Auditor) Query(ctx context.Context, q coreapi.AuditQuery) (page coreapi.AuditPage, err error) {
	page.Lines = []string{}
	switch {
	case q.Limit < 0 || q.Limit > coreapi.MaxAudit:
		return page, bus.Errorf(bus.CodeInvalidArgument, "query: limit is %d, want 1 to %d, or 0 for %d", q.Limit, coreapi.MaxAudit, defaultList)
	case q.Verb != "" && !slices.Contains(audit.Verbs(), q.Verb):
		return page, bus.Errorf(bus.CodeInvalidArgument, "query: verb is %.40q, want one of %v", string(q.Verb), audit.Verbs())
	case q.From > 0 && q.Before > 0:
		return page, bus.Errorf(bus.CodeInvalidArgument, "query: from and before exclude each other")
	case q.Limit == 0:
		q.Limit = defaultList
	}
	if q.Verify {
		if err := a.Verify(ctx); err != nil {
			return page, err
		}
		page.Verified = true
	}
	if err := a.ends(ctx, &page); err != nil || page.Last == nil {
		return page, err
	}
	l := listing{q: q, page: &page, until: time.Now().Add(maxRead)}
	if q.From > 0 {
		err = a.forward(ctx, &l)
	} else {
		err = a.backward(ctx, &l)
	}
	return page, err
}

// ends fills in the first and the last entry.
func (a *Auditor) ends(ctx context.Context, page *coreapi.AuditPage) error {
	page.Damage, _ = a.Damage()
	last, err := a.cfg.Bus.LastAudit(ctx)
	if errors.Is(err, bus.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	first, err := a.cfg.Bus.AuditBlock(ctx, 1)
	if err != nil {
		return err
	}
	lines := audit.Lines(last.Data)
	e, _ := audit.Parse(lines[len(lines)-1]) // what is changed is listed, too
	h := e.Head()
	page.First, page.Last = number(first, 0), &h
	return nil
}

// number is the number of an entry of a block.
func number(m bus.StoredMsg, i int) uint64 {
	e, _ := audit.Parse(audit.Lines(m.Data)[i])
	return e.N
}

// listing is a page that is being filled.
type listing struct {
	q     coreapi.AuditQuery
	page  *coreapi.AuditPage
	until time.Time
	read  int // blocks
	bytes int
}

// full reports whether no more is read for this page.
func (l *listing) full() bool {
	return len(l.page.Lines) >= l.q.Limit || l.bytes > maxAnswer || l.read >= maxBlocks || time.Now().After(l.until)
}

func (l *listing) add(line []byte) {
	l.page.Lines = append(l.page.Lines, string(line))
	l.bytes += len(line)
}

// wanted reports whether an entry matches the query.
func (l *listing) wanted(e audit.Entry) bool {
	q := l.q
	return (q.Since.IsZero() || !e.Time.Before(q.Since)) && (q.Until.IsZero() || e.Time.Before(q.Until)) &&
		(q.By == "" || slices.Contains([]string{e.By.Name, e.By.Via, e.By.From, e.By.String()}, q.By)) &&
		(q.Verb == "" || q.Verb == e.Verb) && (q.Agent == "" || q.Agent == e.Agent) && (q.Session == "" || q.Session == e.Session)
}

// forward lists the entries from a number on.
func (a *Auditor) forward(ctx context.Context, l *listing) error {
	seq, err := a.blockOf(ctx, l.q.From)
	if err != nil {
		return err
	}
	for m, err := range a.cfg.Bus.AuditBlocks(ctx, seq-1) {
		if err != nil {
			return err
		}
		l.read++
		for _, line := range audit.Lines(m.Data) {
			e, _ := audit.Parse(line) // verification names what is changed
			if e.N != 0 && e.N < l.q.From {
				continue
			}
			if l.full() {
				l.page.Next = e.N
				return nil
			}
			if l.wanted(e) {
				l.add(line)
			}
		}
	}
	return nil
}

// backward lists the latest entries before a number.
func (a *Auditor) backward(ctx context.Context, l *listing) error {
	last, err := a.cfg.Bus.LastAudit(ctx)
	seq := last.Seq
	if err == nil && l.q.Before > 0 {
		seq, err = a.blockOf(ctx, l.q.Before)
	}
	for ; err == nil && seq > 0; seq-- {
		var m bus.StoredMsg
		if m, err = a.cfg.Bus.AuditBlock(ctx, seq); err != nil || m.Seq != seq {
			break // the first one that is kept
		}
		l.read++
		for _, line := range slices.Backward(audit.Lines(m.Data)) {
			e, _ := audit.Parse(line)
			if l.q.Before > 0 && e.N >= l.q.Before {
				continue
			}
			if l.full() {
				l.page.Next = e.N + 1
				slices.Reverse(l.page.Lines)
				return nil
			}
			if l.wanted(e) {
				l.add(line)
			}
		}
	}
	slices.Reverse(l.page.Lines)
	if errors.Is(err, bus.ErrNotFound) {
		return nil
	}
	return err
}

// blockOf returns the sequence of the block with an entry, or of the nearest one.
func (a *Auditor) blockOf(ctx context.Context, n uint64) (seq uint64, err error) {
	first, err := a.cfg.Bus.AuditBlock(ctx, 1)
	if err != nil {
		return 0, err
	}
	last, err := a.cfg.Bus.LastAudit(ctx)
	if err != nil {
		return 0, err
	}
	low, high := first.Seq, last.Seq // the last block that begins at n or before it
	for low < high {
		middle := (low + high + 1) / 2
		m, err := a.cfg.Bus.AuditBlock(ctx, middle)
		if err != nil {
			return 0, err
		}
		if number(m, 0) <= n {
			low = middle
		} else {
			high = middle - 1
		}
	}
	return low, nil
}
