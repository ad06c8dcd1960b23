package redis

import (
	"github.com/redis/go-redis/v9"

	"skandha.dev/services/internal/store/redisconn"
)

// change is the Lua function changed(id). It gives the change of a memory the next number.
const change = `
local function changed(id, epoch)
	redis.call('SET', KEYS[6], epoch, 'NX')
	redis.call('ZADD', KEYS[4], redis.call('INCR', KEYS[5]), id)
end
local function known(id)
	local v = redis.call('HGET', KEYS[1], id)
	if not v then return '', '0' end
	return string.match(v, '^(-?)(%d+)$')
end
`

// putScript: KEYS of the agent. ARGV id, revision, epoch, memory, digest of the text, vector
// or "". Without a vector, the one of the same text stays, and what is known already is not
// a change.
var putScript = redis.NewScript(redisconn.Larger + change + `
local removed, revision = known(ARGV[1])
if not revision then
	return redis.error_reply('DAMAGED revision of ' .. ARGV[1])
end
if larger(revision, ARGV[2]) or (revision == ARGV[2] and (removed == '-' or ARGV[6] == '')) then
	return 0
end
if ARGV[6] ~= '' then
	redis.call('HSET', KEYS[3], ARGV[1], ARGV[6])
else
	local vector = redis.call('HGET', KEYS[3], ARGV[1])
	if vector and string.sub(vector, 1, #ARGV[5]) ~= ARGV[5] then
		redis.call('HDEL', KEYS[3], ARGV[1])
	end
end
redis.call('HSET', KEYS[2], ARGV[1], ARGV[4])
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
changed(ARGV[1], ARGV[3])
return 1
`)

// removeScript: KEYS of the agent. ARGV id, revision, epoch.
var removeScript = redis.NewScript(redisconn.Larger + change + `
local removed, revision = known(ARGV[1])
if not revision then
	return redis.error_reply('DAMAGED revision of ' .. ARGV[1])
end
if larger(revision, ARGV[2]) then
	return 0
end
redis.call('HDEL', KEYS[2], ARGV[1])
redis.call('HDEL', KEYS[3], ARGV[1])
redis.call('HSET', KEYS[1], ARGV[1], '-' .. ARGV[2])
changed(ARGV[1], ARGV[3])
return 1
`)

// positionScript: KEYS position. ARGV revision.
var positionScript = redis.NewScript(redisconn.Larger + `
local revision = redis.call('GET', KEYS[1])
if not revision or not string.match(revision, '^%d+$') or larger(ARGV[1], revision) then
	redis.call('SET', KEYS[1], ARGV[1])
end
return 1
`)
