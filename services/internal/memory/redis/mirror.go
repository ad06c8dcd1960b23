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

	"skandha.dev/pkg/subject"
	index "skandha.dev/services/internal/memory"
)

// mirror is what a process keeps of an agent's memories.
type mirror struct {
	mu    sync.Mutex
	epoch string
	at    uint64 // number of the last change that it has
	items index.Items
}

// look returns the agent's memories as they are now, newest first.
func (s *Store) look(ctx context.Context, agent subject.Agent) ([]*index.Item, error) {
	m, found := s.mirrors.Get(agent)
	if !found {
		m = &mirror{}
		if other, was, _ := s.mirrors.PeekOrAdd(agent, m); was {
			m = other
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	changed, err := s.changesOf(ctx, agent, m)
	if err != nil {
		return nil, err
	}
	// In the order of their numbers, so that a call that ends too early has not been in vain.
	for part := range slices.Chunk(changed, maxBatch) {
		var ids []string
		for _, z := range part {
			id, _ := z.Member.(string)
			ids = append(ids, id)
		}
		entries, err := s.fetch(ctx, agent, ids)
		if err != nil {
			return nil, err
		}
		m.items.Change(ids, entries)
		m.at = uint64(part[len(part)-1].Score)
	}
	return m.items.Newest(), nil
}

// changesOf returns which memories have changed since the mirror was read, with the numbers of
// these changes. A mirror of another epoch becomes empty.
func (s *Store) changesOf(ctx context.Context, agent subject.Agent, m *mirror) ([]redis.Z, error) {
	keys := s.keys(agent)
	var now, last *redis.StringCmd
	var since *redis.ZSliceCmd
	_, err := s.conn.Client.TxPipelined(ctx, func(tx redis.Pipeliner) error {
		now, last = tx.Get(ctx, keys[epoch]), tx.Get(ctx, keys[changed])
		from := "(" + strconv.FormatUint(m.at, 10)
		since = tx.ZRangeByScoreWithScores(ctx, keys[changes], &redis.ZRangeBy{Min: from, Max: "+inf"})
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
		return since.Val(), nil
	}
	empty := m.at == 0
	m.items, m.epoch, m.at = index.Items{}, now.Val(), 0
	if empty {
		return since.Val(), nil
	}
	return s.changesOf(ctx, agent, m)
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
