// Package coretest answers requests as core does, for tests of core's clients that run without
// a core.
package coretest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/memory"
	"skandha.dev/pkg/strictjson"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/test/natstest"
)

// Memory answers service.admin.memory. Its fields say how; they may be changed under Lock.
type Memory struct {
	sync.Mutex
	All      []memory.Memory // of all agents, oldest first
	Embedder string
	Trouble  string
	Fault    error                 // answers every request
	Asked    []coreapi.MemoryQuery // in the order in which they came
}

// Remember answers with m until the test ends, unless a core answers.
func Remember(t testing.TB, b *journal.Journal, m *Memory) {
	t.Helper()
	subj := subject.Service(coreapi.AdminName, coreapi.VerbMemory)
	if _, err := b.Conn().Request(subj, nil, time.Second); !errors.Is(err, nats.ErrNoResponders) {
		return
	}
	r, err := b.Respond(subj, coreapi.AdminName, coreapi.AdminName,
		func(q *bus.Request) { coreapi.Answer(q, m.serve) })
	if err == nil {
		err = b.Conn().Flush()
	}
	if err != nil {
		t.Fatalf("answering as core: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), natstest.Patience)
		defer cancel()
		if err := r.Drain(ctx); err != nil {
			t.Logf("stopping to answer as core: %v", err) // the bus may have ended before
		}
	})
}

func (m *Memory) serve(r *bus.Request) (any, error) {
	m.Lock()
	defer m.Unlock()
	var q coreapi.MemoryQuery
	if err := strictjson.Unmarshal(r.Data, &q); err != nil {
		return nil, bus.Errorf(bus.CodeInvalidArgument, "%v", err)
	}
	m.Asked = append(m.Asked, q)
	if m.Fault != nil {
		return nil, m.Fault
	}
	switch q.Op {
	case coreapi.MemoryList:
		return m.list(q)
	case coreapi.MemorySearch:
		return coreapi.MemoryAnswer{Hits: m.search(q), Embedder: m.Embedder, Trouble: m.Trouble}, nil
	case coreapi.MemoryStore:
		return m.store(q)
	case coreapi.MemoryCorrect:
		return m.correct(q)
	case coreapi.MemoryForget:
		i, err := m.find(q)
		if err == nil {
			m.All = slices.Delete(m.All, i, i+1)
		}
		return coreapi.MemoryAnswer{}, err
	}
	return nil, bus.Errorf(bus.CodeInvalidArgument, "op is %q", q.Op)
}

// of returns what the agent remembers of the kinds, newest first.
func (m *Memory) of(q coreapi.MemoryQuery) (out []memory.Memory) {
	for _, one := range slices.Backward(m.All) {
		if one.Agent == q.Agent && (len(q.Kinds) == 0 || slices.Contains(q.Kinds, one.Kind)) {
			out = append(out, one)
		}
	}
	return out
}

func (m *Memory) list(q coreapi.MemoryQuery) (any, error) {
	all, from := m.of(q), 0
	if q.After != "" {
		var err error
		if from, err = strconv.Atoi(q.After); err != nil {
			return nil, bus.Errorf(bus.CodeInvalidArgument, "after is %q", q.After)
		}
	}
	end := min(from+cmp.Or(q.Limit, 20), len(all))
	a := coreapi.MemoryAnswer{Memories: all[min(from, end):end], Embedder: m.Embedder, Trouble: m.Trouble}
	if end < len(all) {
		a.Next = strconv.Itoa(end)
	}
	return a, nil
}

func (m *Memory) search(q coreapi.MemoryQuery) (out []memory.Hit) {
	for _, one := range m.of(q) {
		score := 0
		for _, word := range strings.Fields(strings.ToLower(q.Text)) {
			score += strings.Count(strings.ToLower(one.Text), word)
		}
		if score > 0 {
			out = append(out, memory.Hit{Memory: one, Score: float64(score), Match: memory.Lexical})
		}
	}
	slices.SortStableFunc(out, func(x, y memory.Hit) int { return cmp.Compare(y.Score, x.Score) })
	return out[:min(len(out), cmp.Or(q.Limit, 20))]
}

func (m *Memory) store(q coreapi.MemoryQuery) (any, error) {
	if i, err := m.find(q); err == nil {
		return coreapi.MemoryAnswer{Memory: &m.All[i]}, nil
	}
	one := memory.Memory{
		ID: cmp.Or(q.ID, fmt.Sprintf("m-%d", len(m.Asked))), Agent: q.Agent, Kind: cmp.Or(q.Kind, memory.Fact), Text: q.Text,
		Pinned: q.Pinned != nil && *q.Pinned, Created: time.Now().UTC(),
		Source: memory.Source{Origin: memory.FromPerson, Principal: q.Caller},
	}
	if q.Source != nil {
		one.Source = *q.Source
	}
	if err := one.Check(); err != nil {
		return nil, bus.Errorf(bus.CodeInvalidArgument, "%v", err)
	}
	m.All = append(m.All, one)
	return coreapi.MemoryAnswer{Memory: &one}, nil
}

func (m *Memory) correct(q coreapi.MemoryQuery) (any, error) {
	i, err := m.find(q)
	if err != nil {
		return nil, err
	}
	one := m.All[i]
	if q.Text != "" {
		one.Text, one.Source.Origin, one.Source.Principal, one.Source.URL = q.Text, memory.FromPerson, q.Caller, ""
	}
	one.Updated = time.Now().UTC()
	if q.Pinned != nil {
		one.Pinned = *q.Pinned
	}
	m.All[i] = one
	return coreapi.MemoryAnswer{Memory: &one}, nil
}

func (m *Memory) find(q coreapi.MemoryQuery) (int, error) {
	i := slices.IndexFunc(m.All, func(one memory.Memory) bool { return one.Agent == q.Agent && one.ID == q.ID })
	if i < 0 {
		return 0, bus.Errorf(bus.CodeNotFound, "agent %s has no memory %q", q.Agent, q.ID)
	}
	return i, nil
}
