package redis

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"skandha.dev/services/internal/store"
	"skandha.dev/services/internal/store/redisconn"
)

// recordBatch is how many records go in one round trip.
const recordBatch = 256

// RecordTools implements store.Store.
func (s *Store) RecordTools(ctx context.Context, records []store.ToolRecord) (gaps []store.Key, err error) {
	if err := store.ValidateTools(records); err != nil {
		return nil, err
	}
	for batch := range slices.Chunk(records, recordBatch) {
		err := s.do(ctx, "record tools", func() error {
			missing, err := s.record(ctx, batch)
			for _, k := range missing {
				if !slices.Contains(gaps, k) {
					gaps = append(gaps, k)
				}
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return gaps, s.do(ctx, "record tools", func() error { return nil })
}

// record runs the script for each; see runFor.
func (s *Store) record(ctx context.Context, batch []store.ToolRecord) (gaps []store.Key, err error) {
	pipe, ran := s.conn.Client.Pipeline(), make([]*redis.Cmd, len(batch))
	for i, r := range batch {
		pipe.SAdd(ctx, s.keys.agents(), r.Key.Agent)
		ran[i] = recordScript.EvalSha(ctx, pipe, s.recordKeys(r), recordArgs(r)...)
	}
	_, failed := pipe.Exec(ctx)
	for i, r := range batch {
		if redis.HasErrorPrefix(ran[i].Err(), "NOSCRIPT") {
			if failed = s.conn.Client.SAdd(ctx, s.keys.agents(), r.Key.Agent).Err(); failed == nil {
				ran[i] = recordScript.Eval(ctx, s.conn.Client, s.recordKeys(r), recordArgs(r)...)
				failed = ran[i].Err()
			}
		}
		fits, err := ran[i].Bool()
		if err != nil {
			return gaps, damage(err, s.recordKeys(r)...)
		}
		if !fits {
			gaps = append(gaps, r.Key)
		}
	}
	return gaps, damage(failed, s.keys.agents())
}

func (s *Store) recordKeys(r store.ToolRecord) []string {
	return []string{s.keys.counted(r.Key.Agent), s.keys.tools(r.Key.Agent)}
}

func recordArgs(r store.ToolRecord) []any {
	args := []any{r.Key.Session, r.After, r.Rev, r.Sum()}
	for _, d := range r.Deltas {
		args = append(args, d.Tool, d.Used, d.Succeeded, d.Unknown, d.LatencyMS, store.Micros(d.At))
	}
	return args
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
	agents, err := s.conn.Client.SMembers(ctx, s.keys.agents()).Result()
	if err != nil || len(agents) == 0 {
		return nil, damage(err, s.keys.agents())
	}
	pipe := s.conn.Client.Pipeline()
	replies := make([]*redis.MapStringStringCmd, len(agents))
	for i, a := range agents {
		replies[i] = pipe.HGetAll(ctx, s.keys.tools(a))
	}
	_, failed := pipe.Exec(ctx)
	byTool := map[string]*store.ToolStat{}
	for i, r := range replies {
		if err := addFields(byTool, r); err != nil {
			return nil, damage(err, s.keys.counted(agents[i]), s.keys.tools(agents[i]))
		}
	}
	stats := make([]store.ToolStat, 0, len(byTool))
	for _, t := range byTool {
		stats = append(stats, *t)
	}
	slices.SortFunc(stats, func(a, b store.ToolStat) int { return cmp.Compare(a.Tool, b.Tool) })
	return stats, failed
}

// addFields adds an agent's tools hash.
func addFields(byTool map[string]*store.ToolStat, reply *redis.MapStringStringCmd) error {
	for field, value := range reply.Val() {
		if err := addField(byTool, field, value); err != nil {
			return err
		}
	}
	return reply.Err()
}

// addField adds one field of an agent's tools hash, "<what>:<tool>".
func addField(byTool map[string]*store.ToolStat, field, value string) error {
	what, tool, _ := strings.Cut(field, ":")
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return damagedValue(fmt.Sprintf("tool statistic %q is %.40q", field, value))
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
	default:
		return damagedValue(fmt.Sprintf("field %q is not a tool statistic", field))
	}
	return nil
}

// VerifyTools implements store.Store, agent by agent.
func (s *Store) VerifyTools(ctx context.Context) (sound bool, err error) {
	sound = true
	err = s.do(ctx, "verify tool statistics", func() error {
		agents, err := s.conn.Client.SMembers(ctx, s.keys.agents()).Result()
		if err != nil {
			return damage(err, s.keys.agents())
		}
		for _, a := range agents {
			if err := s.verifyTools(ctx, a); err != nil {
				sound = false
				return damage(err, s.keys.counted(a), s.keys.tools(a), s.keys.before(a))
			}
		}
		return nil
	})
	return sound && err == nil, err
}

// verifyTools compares an agent's sums with what its sessions added.
func (s *Store) verifyTools(ctx context.Context, agent string) error {
	tx := s.conn.Client.TxPipeline()
	tools, counted := tx.HGetAll(ctx, s.keys.tools(agent)), tx.HGetAll(ctx, s.keys.counted(agent))
	if _, err := tx.Exec(ctx); err != nil {
		return err
	}
	byTool := map[string]*store.ToolStat{}
	if err := addFields(byTool, tools); err != nil {
		return err
	}
	var sums, added int64
	for _, t := range byTool {
		sums += t.Sum()
	}
	for field, value := range counted.Val() {
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return damagedValue(fmt.Sprintf("%q is %.40q", field, value))
		}
		if strings.HasPrefix(field, "sum:") {
			added += n
		}
	}
	if sums != added {
		return damagedValue(fmt.Sprintf("the sum of the statistics is %d, that of the sessions %d", sums, added))
	}
	return nil
}

// damagedValue is an error about a damaged value, in the form of a server's error.
type damagedValue string

func (e damagedValue) Error() string { return redisconn.Damaged + " " + string(e) }
func (damagedValue) RedisError()     {}

// ResetTools implements store.Store. An agent's sums and their revisions are removed
// in one step.
func (s *Store) ResetTools(ctx context.Context) error {
	return s.do(ctx, "reset tool statistics", func() error {
		agents, err := s.conn.Client.SMembers(ctx, s.keys.agents()).Result()
		if err != nil {
			return damage(err, s.keys.agents())
		}
		if err := s.conn.Client.Unlink(ctx, s.keys.coverage()).Err(); err != nil {
			return err
		}
		for _, a := range agents {
			if err := s.conn.Client.Unlink(ctx, s.keys.tools(a), s.keys.counted(a), s.keys.before(a)).Err(); err != nil {
				return err
			}
		}
		return nil
	})
}
