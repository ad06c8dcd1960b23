package redis

import (
	"context"

	"github.com/redis/go-redis/v9"

	"skandha.dev/services/internal/store/redisconn"
)

// Wipe implements store.Store. It removes an agent's sums and their revisions in one
// step, so that a refold after an interrupted wipe counts nothing twice.
func (s *Store) Wipe(ctx context.Context) error {
	return s.do(ctx, "wipe", func() error {
		agents, err := s.conn.Client.SMembers(ctx, s.keys.agents()).Result()
		if err != nil {
			return damage(err, s.keys.agents())
		}
		for _, a := range agents {
			if err := s.conn.Client.Unlink(ctx, s.keys.tools(a), s.keys.counted(a), s.keys.before(a),
				s.keys.sessions(a)).Err(); err != nil {
				return err
			}
		}
		if err := s.conn.Masters(ctx, s.sweep); err != nil {
			return err
		}
		_, err = s.conn.Client.Pipelined(ctx, func(p redis.Pipeliner) error {
			p.Unlink(ctx, s.keys.coverage())
			p.Unlink(ctx, s.keys.lease())
			p.Unlink(ctx, s.keys.marks())
			p.Unlink(ctx, s.keys.agents())
			return nil
		})
		return err
	})
}

func (s *Store) sweep(ctx context.Context, server *redis.Client) error {
	return redisconn.Sweep(ctx, server, redisconn.Pattern(s.conn.Prefix))
}
