package redis

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	index "skandha.dev/services/internal/memory"
)

// maxBatch is how many memories are written or read in one round trip.
const maxBatch = 500

// Put implements memory.Store. Each entry is stored in one step.
func (s *Store) Put(ctx context.Context, entries []index.Entry) error {
	entries, err := index.Prepare(entries)
	if err != nil {
		return err
	}
	return s.do(ctx, "put", func() error {
		if err := s.announce(ctx, entries); err != nil {
			return err
		}
		for rest := entries; len(rest) > 0; rest = rest[min(maxBatch, len(rest)):] {
			if err := s.putBatch(ctx, rest[:min(maxBatch, len(rest))]); err != nil {
				return err
			}
		}
		return nil
	})
}

// announce adds agents and models, before anything of them is stored: an agent without keys
// is harmless, but keys without their agent would never be found.
func (s *Store) announce(ctx context.Context, entries []index.Entry) error {
	known := map[string]bool{}
	for _, e := range entries {
		if !known["agent "+string(e.Agent)] {
			known["agent "+string(e.Agent)] = true
			if err := s.conn.Client.SAdd(ctx, s.agents(), string(e.Agent)).Err(); err != nil {
				return damage(err, s.agents())
			}
		}
		model := fmt.Sprint(len(e.Vector), e.Model)
		if e.Vector == nil || known[model] {
			continue
		}
		known[model] = true
		if err := s.conn.Client.HSetNX(ctx, s.models(), e.Model, len(e.Vector)).Err(); err != nil {
			return damage(err, s.models())
		}
		if err := s.checkDimension(ctx, e.Model, len(e.Vector)); err != nil {
			return err
		}
	}
	return nil
}

// checkDimension compares with the other vectors of the model, if there are any.
func (s *Store) checkDimension(ctx context.Context, model string, dimension int) error {
	want, err := s.conn.Client.HGet(ctx, s.models(), model).Int()
	switch {
	case errors.Is(err, redis.Nil):
		return nil
	case err != nil:
		return damage(err, s.models())
	case want != dimension:
		return index.WrongDimension(model, dimension, want)
	}
	return nil
}

func (s *Store) putBatch(ctx context.Context, entries []index.Entry) error {
	return s.withScript(ctx, putScript, func() error {
		pipe, replies := s.conn.Client.Pipeline(), make([]*redis.Cmd, len(entries))
		for i, e := range entries {
			data, err := json.Marshal(e.Memory)
			if err != nil {
				return err
			}
			replies[i] = putScript.EvalSha(ctx, pipe, s.keys(e.Agent), e.ID, e.Revision, rand.Text(), data,
				digest(e.Text), encodeVector(e))
		}
		_, err := pipe.Exec(ctx)
		for i, r := range replies {
			if err := damage(r.Err(), s.keys(entries[i].Agent)...); err != nil {
				return err
			}
		}
		return err
	})
}

// Remove implements memory.Store, in one step.
func (s *Store) Remove(ctx context.Context, key index.Key, revision uint64) error {
	if err := index.CheckRemoval(key, revision); err != nil {
		return err
	}
	return s.do(ctx, "remove", func() error {
		if err := s.conn.Client.SAdd(ctx, s.agents(), string(key.Agent)).Err(); err != nil {
			return damage(err, s.agents())
		}
		keys := s.keys(key.Agent)
		return damage(removeScript.Run(ctx, s.conn.Client, keys, key.ID, revision, rand.Text()).Err(), keys...)
	})
}

// withScript repeats a call after loading the script, if a server does not know it.
func (s *Store) withScript(ctx context.Context, script *redis.Script, call func() error) error {
	err := call()
	if !redis.HasErrorPrefix(err, "NOSCRIPT") {
		return err
	}
	if err := s.conn.Masters(ctx, func(ctx context.Context, server *redis.Client) error {
		return script.Load(ctx, server).Err()
	}); err != nil {
		return err
	}
	return call()
}

func digest(text string) []byte {
	sum := sha256.Sum256([]byte(text))
	return sum[:]
}

// encodeVector returns the digest of the text, the length of the model's name in two bytes,
// the name and the numbers; nothing without a vector.
func encodeVector(e index.Entry) []byte {
	if e.Vector == nil {
		return nil
	}
	b := binary.BigEndian.AppendUint16(digest(e.Text), uint16(len(e.Model)))
	return append(append(b, e.Model...), index.EncodeVector(e.Vector)...)
}

// decodeVector is the inverse of encodeVector.
func decodeVector(text string) (model string, v []float32, err error) {
	if text == "" {
		return "", nil, nil
	}
	const head = sha256.Size + 2
	b := []byte(text)
	if len(b) < head || len(b) < head+int(binary.BigEndian.Uint16(b[sha256.Size:])) {
		return "", nil, fmt.Errorf("a vector has %d bytes", len(b))
	}
	end := head + int(binary.BigEndian.Uint16(b[sha256.Size:]))
	v, err = index.DecodeVector(b[end:])
	return string(b[head:end]), v, err
}
