package redis

import (
	"context"

	"github.com/redis/go-redis/v9"

	"skandha.dev/services/internal/store/redisconn"
)

// saveScript: KEYS snapshot, sessions. ARGV session, minus update time, rev, fold
// version, then the fields and values to set. Revisions that are not numbers are
// overwritten. A newer snapshot stays, and is added to the list if it was missing there.
var saveScript = redis.NewScript(redisconn.Larger + `
local kept = redis.call('HMGET', KEYS[1], 'rev', 'fold', 'updated')
local rev, fold, updated = tostring(kept[1]), tostring(kept[2]), tostring(kept[3])
if string.match(rev, '^%d+$') and string.match(fold, '^%d+$') and
	(larger(rev, ARGV[3]) or (ARGV[3] == rev and larger(fold, ARGV[4]))) then
	if string.match(updated, '^%d+$') and not redis.call('ZSCORE', KEYS[2], ARGV[1]) then
		redis.call('ZADD', KEYS[2], '-' .. updated, ARGV[1])
	end
	return 0
end
redis.call('HSET', KEYS[1], 'rev', ARGV[3], 'fold', ARGV[4], unpack(ARGV, 5))
redis.call('ZADD', KEYS[2], ARGV[2], ARGV[1])
return 1
`)

// recordScript: KEYS counted, tools. ARGV session, after, rev, sum, then per delta:
// tool, used, succeeded, unknown, latency, time. It returns 0 for a gap. A first
// record replaces a sum that lost its revision, so that the sums no longer agree.
var recordScript = redis.NewScript(redisconn.Larger + `
local function number(v)
	return string.match(tostring(v), '^-?%d+$')
end
local rev = redis.call('HGET', KEYS[1], 'rev:' .. ARGV[1]) or '0'
if not number(rev) then
	return redis.error_reply('DAMAGED statistics revision of ' .. ARGV[1])
end
if not larger(ARGV[3], rev) then
	return 1
end
if larger(ARGV[2], rev) then
	return 0
end
for i = 5, #ARGV, 6 do
	for _, what in ipairs({'used:', 'succeeded:', 'unknown:', 'latency_ms:', 'last_used:'}) do
		local v = redis.call('HGET', KEYS[2], what .. ARGV[i])
		if v and not number(v) then
			return redis.error_reply('DAMAGED tool statistic ' .. what .. ARGV[i])
		end
	end
end
if rev == '0' then
	redis.call('HSET', KEYS[1], 'sum:' .. ARGV[1], ARGV[4])
else
	redis.call('HINCRBY', KEYS[1], 'sum:' .. ARGV[1], ARGV[4])
end
redis.call('HSET', KEYS[1], 'rev:' .. ARGV[1], ARGV[3])
for i = 5, #ARGV, 6 do
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
var markScript = redis.NewScript(redisconn.Larger + `
local value = redis.call('HGET', KEYS[1], ARGV[1])
if not value or not string.match(value, '^%d+$') or larger(ARGV[2], value) then
	redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
end
return 1
`)

// leaseScript: KEYS lease. ARGV holder, note, milliseconds.
var leaseScript = redis.NewScript(`
local holder = redis.call('HGET', KEYS[1], 'holder')
if holder and holder ~= ARGV[1] then
	return {holder, redis.call('HGET', KEYS[1], 'note') or ''}
end
if ARGV[3] == '0' then
	redis.call('DEL', KEYS[1])
	return {'', ''}
end
redis.call('HSET', KEYS[1], 'holder', ARGV[1], 'note', ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return {ARGV[1], ARGV[2]}
`)

// runFor runs a script that writes for an agent. It adds the agent to the set of agents
// first, in the same round trip: an agent without keys is harmless, but keys without
// their agent would never be listed.
func (s *Store) runFor(ctx context.Context, agent string, script *redis.Script, keys []string, args ...any) error {
	pipe := s.conn.Client.Pipeline()
	known := pipe.SAdd(ctx, s.keys.agents(), agent)
	ran := script.EvalSha(ctx, pipe, keys, args...)
	_, err := pipe.Exec(ctx)
	if redis.HasErrorPrefix(ran.Err(), "NOSCRIPT") && known.Err() == nil {
		return script.Eval(ctx, s.conn.Client, keys, args...).Err()
	}
	return err
}
