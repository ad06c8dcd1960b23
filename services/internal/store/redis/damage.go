package redis

import (
	"context"
	"errors"
	"strings"

	"skandha.dev/services/internal/store/redisconn"
)

// maxMends bounds how often one call is repeated: it may meet several damaged values,
// one by one.
const maxMends = 8

// damageError names keys that cannot be read, or that hold an unreadable value, and
// that are removed together.
type damageError struct {
	keys  []string
	cause error
}

func (e *damageError) Error() string { return strings.Join(e.keys, ", ") + ": " + e.cause.Error() }
func (e *damageError) Unwrap() error { return e.cause }

// damage returns err as a damageError about keys, if it reports a key or a value of
// the wrong kind.
func damage(err error, keys ...string) error {
	if err == nil {
		return nil
	}
	if _, is := errors.AsType[*damageError](err); is {
		return err
	}
	if redisconn.Unreadable(err) {
		return &damageError{keys, err}
	}
	return err
}

// remove deletes unreadable keys. It deletes the coverage first, so that the owner of
// the log notices.
func (s *Store) remove(ctx context.Context, d *damageError) error {
	if err := s.conn.Client.Unlink(ctx, s.keys.coverage()).Err(); err != nil {
		return err
	}
	for _, group := range bySlot(d.keys) {
		n, err := s.conn.Client.Unlink(ctx, group...).Result()
		if err != nil {
			return err
		}
		if n > 0 {
			s.log.ErrorContext(ctx, "store: removed unreadable Redis keys; they are folded again from the log",
				"redis", s.conn.Where, "keys", group, "error", d.cause)
		}
	}
	return nil
}

// bySlot groups keys by their slot, which depends on the agent, so that each group can be
// deleted in one step.
func bySlot(keys []string) (groups [][]string) {
	of := map[string]int{}
	for _, k := range keys {
		tag, _, tagged := strings.Cut(k, "}")
		if i, found := of[tag]; found && tagged {
			groups[i] = append(groups[i], k)
			continue
		}
		of[tag] = len(groups)
		groups = append(groups, []string{k})
	}
	return groups
}

// wrongTypes narrows the damage of one of several keys to those that are not of the
// expected kind ("hash", "set", "zset"). If all are, it blames all.
func (s *Store) wrongTypes(ctx context.Context, err error, kinds map[string]string) error {
	d, is := errors.AsType[*damageError](damage(err))
	if !is || len(d.keys) > 0 {
		return err
	}
	for key, kind := range kinds {
		found, err := s.conn.Client.Type(ctx, key).Result()
		if err != nil {
			return err
		}
		if found != kind && found != "none" {
			d.keys = append(d.keys, key)
		}
	}
	if len(d.keys) == 0 {
		for key := range kinds {
			d.keys = append(d.keys, key)
		}
	}
	return d
}
