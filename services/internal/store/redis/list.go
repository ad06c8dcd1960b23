package redis

import (
	"context"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"

	"skandha.dev/services/internal/store"
)

// ListSessions implements store.Store. It needs two round trips for one agent and three
// for all agents; the cost grows with the number of agents.
func (s *Store) ListSessions(
	ctx context.Context, agent string, limit int, after string,
) (page []store.SessionInfo, next string, err error) {
	cursor, err := store.ParseCursor(after)
	if err != nil {
		return nil, "", err
	}
	limit = store.PageSize(limit)
	err = s.do(ctx, "list sessions", func() error {
		places, err := s.places(ctx, agent, limit+1, cursor)
		if err != nil {
			return err
		}
		if len(places) > limit {
			places = places[:limit]
			next = places[limit-1].String()
		}
		page, err = s.describe(ctx, places)
		return err
	})
	if err != nil {
		return nil, "", err
	}
	return page, next, nil
}

// places returns the first n places after the cursor in the order of listing.
func (s *Store) places(ctx context.Context, agent string, n int, after store.Cursor) ([]store.Cursor, error) {
	agents := []string{agent}
	if agent == "" {
		var err error
		if agents, err = s.conn.Client.SMembers(ctx, s.keys.agents()).Result(); err != nil || len(agents) == 0 {
			return nil, damage(err, s.keys.agents())
		}
	}
	pipe := s.conn.Client.Pipeline()
	replies := make([]*redis.ZSliceCmd, len(agents))
	for i, a := range agents {
		replies[i] = pipe.ZRangeByScoreWithScores(ctx, s.keys.sessions(a), window(a, n, after))
	}
	_, failed := pipe.Exec(ctx)
	var all []store.Cursor
	for i, a := range agents {
		if err := replies[i].Err(); err != nil {
			return nil, damage(err, s.keys.sessions(a))
		}
		found := afterCursor(a, replies[i].Val(), after)
		if len(found) < n && len(replies[i].Val()) >= n {
			var err error
			if found, err = s.beyondTies(ctx, a, n, after); err != nil {
				return nil, err
			}
		}
		all = append(all, found...)
	}
	slices.SortFunc(all, store.Cursor.Compare)
	return all[:min(n, len(all))], failed
}

// beyondTies searches further when so many sessions share the cursor's microsecond that
// the window held too few sessions after the cursor.
func (s *Store) beyondTies(ctx context.Context, agent string, n int, after store.Cursor) ([]store.Cursor, error) {
	for size := 2 * n; ; size *= 2 {
		z, err := s.conn.Client.ZRangeByScoreWithScores(ctx, s.keys.sessions(agent), window(agent, size, after)).Result()
		if err != nil {
			return nil, err
		}
		if found := afterCursor(agent, z, after); len(found) >= n || len(z) < size {
			return found, nil
		}
	}
}

// window returns the range of an agent's sessions that begins at the cursor's time.
// Scores are negative times, so the newest session comes first, and sessions with equal
// times are sorted by name.
func window(agent string, n int, after store.Cursor) *redis.ZRangeBy {
	from := "-inf"
	if after != store.First {
		from = strconv.FormatInt(-after.Micros, 10)
		if agent < after.Agent {
			from = "(" + from
		}
	}
	return &redis.ZRangeBy{Min: from, Max: "+inf", Count: int64(n)}
}

func afterCursor(agent string, z []redis.Z, after store.Cursor) []store.Cursor {
	var found []store.Cursor
	for _, m := range z {
		session, _ := m.Member.(string)
		c := store.Cursor{Key: store.Key{Agent: agent, Session: session}, Micros: -int64(m.Score)}
		if after.Compare(c) < 0 {
			found = append(found, c)
		}
	}
	return found
}

// describe reads the listed fields. It omits sessions that were deleted meanwhile.
func (s *Store) describe(ctx context.Context, places []store.Cursor) ([]store.SessionInfo, error) {
	if len(places) == 0 {
		return nil, nil
	}
	pipe := s.conn.Client.Pipeline()
	replies := make([]*redis.SliceCmd, len(places))
	for i, c := range places {
		replies[i] = pipe.HMGet(ctx, s.keys.session(c.Agent, c.Session), "rev", "phase", "title", "turns", "above")
	}
	_, failed := pipe.Exec(ctx)
	page := make([]store.SessionInfo, 0, len(places))
	for i, c := range places {
		name := s.keys.session(c.Agent, c.Session)
		if err := replies[i].Err(); err != nil {
			return nil, damage(err, name)
		}
		f := fields{values: replies[i].Val()}
		if gone(f.values) {
			continue
		}
		if f.values[4] == nil {
			f.values[4] = "" // an earlier version wrote it
		}
		info := store.SessionInfo{
			Key: c.Key, Updated: store.FromMicros(c.Micros),
			Rev: uint64(f.number()), Phase: f.text(), Title: f.text(), Turns: int(f.number()), Above: f.text(),
		}
		if err := f.damage(name); err != nil {
			return nil, err
		}
		page = append(page, info)
	}
	return page, failed
}
