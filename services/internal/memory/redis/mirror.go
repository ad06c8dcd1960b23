package redis

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"skandha.dev/pkg/memory"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/lexical"
	index "skandha.dev/services/internal/memory"
)

// mirror is what a process keeps of an agent's memories.
type mirror struct {
	mu    sync.Mutex
	epoch string
	at    uint64 // number of the last change that it has
	items map[string]*item
	order []*item // newest first; replaced, never changed
}

// item is what is compared of one memory. It is immutable.
type item struct {
	index.Cursor

	revision uint64
	kind     memory.Kind
	terms    []string
	model    string
	vector   []float32
}

// look returns the agent's memories as they are now, newest first.
func (s *Store) look(ctx context.Context, agent subject.Agent) ([]*item, error) {
	m, found := s.mirrors.Get(agent)
	if !found {
		m = &mirror{}
		if other, was, _ := s.mirrors.PeekOrAdd(agent, m); was {
			m = other
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	ids, err := s.changesOf(ctx, agent, m)
	if err != nil || len(ids) == 0 {
		return m.order, err
	}
	if m.items == nil {
		m.items = map[string]*item{}
	}
	for part := range slices.Chunk(ids, maxBatch) {
		if err := s.read(ctx, agent, m, part); err != nil {
			m.items, m.order, m.epoch, m.at = nil, nil, "", 0 // read in part
			return nil, err
		}
	}
	m.order = make([]*item, 0, len(m.items))
	for _, i := range m.items {
		m.order = append(m.order, i)
	}
	slices.SortFunc(m.order, func(a, b *item) int { return a.Compare(b.Cursor) })
	return m.order, nil
}

// changesOf returns which memories have changed since the mirror was read, and notes that
// it has these changes. A mirror of another epoch becomes empty.
func (s *Store) changesOf(ctx context.Context, agent subject.Agent, m *mirror) (ids []string, err error) {
	keys := s.keys(agent)
	var now, last *redis.StringCmd
	var since *redis.StringSliceCmd
	_, err = s.conn.Client.TxPipelined(ctx, func(tx redis.Pipeliner) error {
		now, last = tx.Get(ctx, keys[epoch]), tx.Get(ctx, keys[changed])
		from := "(" + strconv.FormatUint(m.at, 10)
		since = tx.ZRangeByScore(ctx, keys[changes], &redis.ZRangeBy{Min: from, Max: "+inf"})
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, damage(err, keys...)
	}
	at, err := strconv.ParseUint(last.Val(), 10, 64)
	if err != nil && last.Val() != "" {
		return nil, &damageError{keys, fmt.Errorf("the number of the last change is %.40q", last.Val())}
	}
	if m.epoch == now.Val() && m.at <= at {
		m.at = at
		return since.Val(), nil
	}
	empty := m.epoch == "" && m.at == 0
	m.items, m.order, m.epoch, m.at = nil, nil, now.Val(), 0
	if empty {
		m.at = at
		return since.Val(), nil
	}
	return s.changesOf(ctx, agent, m)
}

// read reads some memories into the mirror.
func (s *Store) read(ctx context.Context, agent subject.Agent, m *mirror, ids []string) error {
	entries, err := s.fetch(ctx, agent, ids)
	if err != nil {
		return err
	}
	for _, id := range ids {
		delete(m.items, id)
	}
	for _, e := range entries {
		m.items[e.ID] = &item{
			index.CursorOf(e.Memory), e.Revision, e.Kind, lexical.Terms(e.Text), e.Model, e.Vector,
		}
	}
	return nil
}

// fetch returns those of the entries that there are, in order.
func (s *Store) fetch(ctx context.Context, agent subject.Agent, ids []string) (out []index.Entry, err error) {
	if len(ids) == 0 {
		return nil, nil
	}
	keys := s.keys(agent)
	var replies [3]*redis.SliceCmd
	if _, err := s.conn.Client.TxPipelined(ctx, func(tx redis.Pipeliner) error {
		for i := range replies {
			replies[i] = tx.HMGet(ctx, keys[i], ids...)
		}
		return nil
	}); err != nil {
		return nil, damage(err, keys...)
	}
	for i, id := range ids {
		e, found, err := decode(replies[revisions].Val()[i], replies[memories].Val()[i], replies[vectors].Val()[i])
		if err != nil {
			return nil, &damageError{keys, fmt.Errorf("memory %.140q: %w", id, err)}
		}
		if found {
			out = append(out, e)
		}
	}
	return out, nil
}

// decode returns an entry from the values of its hashes.
func decode(revision, data, vector any) (e index.Entry, found bool, err error) {
	number, _ := revision.(string)
	text, _ := data.(string)
	numbers, _ := vector.(string)
	if number == "" || strings.HasPrefix(number, "-") {
		return e, false, nil
	}
	if e.Revision, err = strconv.ParseUint(number, 10, 64); err != nil {
		return e, false, fmt.Errorf("the revision is %.40q", number)
	}
	if err := json.Unmarshal([]byte(text), &e.Memory); err != nil {
		return e, false, fmt.Errorf("it is not JSON: %w", err)
	}
	e.Model, e.Vector, err = decodeVector(numbers)
	return e, true, err
}
