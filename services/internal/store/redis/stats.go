package redis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"skandha.dev/services/internal/store"
)

// RecordAll implements store.Store, commit by commit.
func (s *Store) RecordAll(ctx context.Context, records []store.ToolRecord) error {
	for _, r := range records {
		if err := s.RecordTools(ctx, r.Key, r.Rev, r.Deltas); err != nil {
			return err
		}
	}
	return nil
}

// RecordTools implements store.Store.
func (s *Store) RecordTools(ctx context.Context, key store.Key, rev uint64, deltas []store.ToolDelta) error {
	if err := store.ValidateTools(key, rev, deltas); err != nil || len(deltas) == 0 {
		return err
	}
	args := []any{key.Session, rev}
	for _, d := range deltas {
		args = append(args, d.Tool, d.Used, d.Succeeded, d.Unknown, d.LatencyMS, store.Micros(d.At))
	}
	keys := []string{s.keys.recorded(key.Agent), s.keys.tools(key.Agent)}
	return s.do(ctx, "record tools", func() error {
		return s.runFor(ctx, key.Agent, recordScript, keys, args...)
	})
}

// ToolStats implements store.Store.
func (s *Store) ToolStats(ctx context.Context) (stats []store.ToolStat, err error) {
	err = s.do(ctx, "tool statistics", func() error {
		stats, err = s.toolStats(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	return stats, nil
}

func (s *Store) toolStats(ctx context.Context) ([]store.ToolStat, error) {
	agents, err := s.client.SMembers(ctx, s.keys.agents()).Result()
	if err != nil || len(agents) == 0 {
		return nil, err
	}
	pipe := s.client.Pipeline()
	replies := make([]*redis.MapStringStringCmd, len(agents))
	for i, a := range agents {
		replies[i] = pipe.HGetAll(ctx, s.keys.tools(a))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, err
	}
	byTool := map[string]*store.ToolStat{}
	for _, r := range replies {
		for field, value := range r.Val() {
			if err := addField(byTool, field, value); err != nil {
				return nil, err
			}
		}
	}
	stats := make([]store.ToolStat, 0, len(byTool))
	for _, t := range byTool {
		stats = append(stats, *t)
	}
	slices.SortFunc(stats, func(a, b store.ToolStat) int { return cmp.Compare(a.Tool, b.Tool) })
	return stats, nil
}

// addField adds one field of an agent's tools hash, "<what>:<tool>".
func addField(byTool map[string]*store.ToolStat, field, value string) error {
	what, tool, _ := strings.Cut(field, ":")
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return fmt.Errorf("tool statistic %q is %.40q", field, value)
	}
	t := byTool[tool]
	if t == nil {
		t = &store.ToolStat{Tool: tool}
		byTool[tool] = t
	}
	switch what {
	case "used":
		t.Used += n
	case "succeeded":
		t.Succeeded += n
	case "unknown":
		t.Unknown += n
	case "latency_ms":
		t.TotalLatencyMS += n
	case "last_used":
		if at := store.FromMicros(n); at.After(t.LastUsed) {
			t.LastUsed = at
		}
	}
	return nil
}

// SetMark implements store.Store.
func (s *Store) SetMark(ctx context.Context, name string, value uint64) error {
	if err := store.ValidateMark(name, value); err != nil {
		return err
	}
	return s.do(ctx, "set mark", func() error {
		return markScript.Run(ctx, s.client, []string{s.keys.marks()}, name, value).Err()
	})
}

// Mark implements store.Store.
func (s *Store) Mark(ctx context.Context, name string) (value uint64, err error) {
	if err := store.ValidateMark(name, 0); err != nil {
		return 0, err
	}
	err = s.do(ctx, "mark", func() error {
		value, err = s.client.HGet(ctx, s.keys.marks(), name).Uint64()
		if errors.Is(err, redis.Nil) {
			return nil
		}
		return err
	})
	return value, err
}
