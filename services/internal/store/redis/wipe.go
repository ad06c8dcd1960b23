package redis

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// scanCount is how many keys SCAN looks at in one call.
const scanCount = 1000

// Wipe implements store.Store. It removes an agent's sums and their revisions in one
// step, so that a refold after an interrupted wipe counts nothing twice.
func (s *Store) Wipe(ctx context.Context) error {
	return s.do(ctx, "wipe", func() error {
		agents, err := s.client.SMembers(ctx, s.keys.agents()).Result()
		if err != nil {
			return damage(err, s.keys.agents())
		}
		for _, a := range agents {
			if err := s.client.Unlink(ctx, s.keys.tools(a), s.keys.counted(a), s.keys.before(a),
				s.keys.sessions(a)).Err(); err != nil {
				return err
			}
		}
		if err := s.eachServer(ctx, s.sweep); err != nil {
			return err
		}
		_, err = s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
			p.Unlink(ctx, s.keys.coverage())
			p.Unlink(ctx, s.keys.lease())
			p.Unlink(ctx, s.keys.marks())
			p.Unlink(ctx, s.keys.agents())
			return nil
		})
		return err
	})
}

// eachServer calls f for the server, or for every master of a cluster.
func (s *Store) eachServer(ctx context.Context, f func(context.Context, *redis.Client) error) error {
	switch c := s.client.(type) {
	case *redis.ClusterClient:
		return c.ForEachMaster(ctx, f)
	case *redis.Client:
		return f(ctx, c)
	}
	panic("redis: unexpected type of client")
}

// sweep removes a server's keys of all agents, one by one, because one command can't
// remove keys of several slots.
func (s *Store) sweep(ctx context.Context, server *redis.Client) error {
	for cursor := uint64(0); ; {
		keys, next, err := server.Scan(ctx, cursor, s.keys.pattern(), scanCount).Result()
		if err != nil {
			return err
		}
		if len(keys) > 0 {
			_, err := server.Pipelined(ctx, func(p redis.Pipeliner) error {
				for _, k := range keys {
					p.Unlink(ctx, k)
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}
