package redis

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// larger compares positive decimal numbers that a Lua number can't hold.
const larger = `
local function larger(a, b)
	if #a ~= #b then return #a > #b end
	return a > b
end
`

// saveScript: KEYS snapshot, sessions. ARGV session, minus update time, rev, fold
// version, then the fields and values to set.
var saveScript = redis.NewScript(larger + `
local rev, fold = unpack(redis.call('HMGET', KEYS[1], 'rev', 'fold'))
if rev and not larger(ARGV[3], rev) and not (ARGV[3] == rev and larger(ARGV[4], fold or '')) then
	return 0
end
redis.call('HSET', KEYS[1], 'rev', ARGV[3], 'fold', ARGV[4], unpack(ARGV, 5))
redis.call('ZADD', KEYS[2], ARGV[2], ARGV[1])
return 1
`)

// recordScript: KEYS recorded, tools. ARGV session, rev, then per delta: tool,
// used, succeeded, unknown, latency, time.
var recordScript = redis.NewScript(larger + `
local rev = redis.call('HGET', KEYS[1], ARGV[1])
if rev and not larger(ARGV[2], rev) then
	return 0
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
for i = 3, #ARGV, 6 do
	local tool = ARGV[i]
	redis.call('HINCRBY', KEYS[2], 'used:' .. tool, ARGV[i+1])
	redis.call('HINCRBY', KEYS[2], 'succeeded:' .. tool, ARGV[i+2])
	redis.call('HINCRBY', KEYS[2], 'unknown:' .. tool, ARGV[i+3])
	redis.call('HINCRBY', KEYS[2], 'latency_ms:' .. tool, ARGV[i+4])
	local last = redis.call('HGET', KEYS[2], 'last_used:' .. tool)
	if not last or larger(ARGV[i+5], last) then
		redis.call('HSET', KEYS[2], 'last_used:' .. tool, ARGV[i+5])
	end
end
return 1
`)

// markScript: KEYS marks. ARGV name, value.
var markScript = redis.NewScript(larger + `
local value = redis.call('HGET', KEYS[1], ARGV[1])
if not value or larger(ARGV[2], value) then
	redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
end
return 1
`)

// runFor runs a script that writes for an agent. The agent is made known first,
// in the same round trip: an agent without keys is harmless, keys without their
// agent would be listed by nobody.
func (s *Store) runFor(ctx context.Context, agent string, script *redis.Script, keys []string, args ...any) error {
	pipe := s.client.Pipeline()
	known := pipe.SAdd(ctx, s.keys.agents(), agent)
	ran := script.EvalSha(ctx, pipe, keys, args...)
	_, err := pipe.Exec(ctx)
	if redis.HasErrorPrefix(ran.Err(), "NOSCRIPT") && known.Err() == nil {
		return script.Eval(ctx, s.client, keys, args...).Err()
	}
	return err
}
