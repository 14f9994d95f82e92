--[[
The leader's look at who is due, and the trace of it that `status` shows. Members up to `released` were let go by an
operator; the others count towards a mass expiry.

KEYS[1]   meta

ARGV[1]   by      JSON members `"actor":…,"source":…` for the history
ARGV[2]   lease   the leader's whole lease
ARGV[3]   limit   at most so many members are named

reply     {status, version, deadline clock, instances, due, due and not released, released up to, held since ms or empty,
           member, incarnation, deadline, …} DONE, FENCED
]]
-- include: statuses
-- include: keys
-- include: version
-- include: clock
-- include: changes
-- include: deadline_clock
-- include: leadership

local by, lease, limit = ARGV[1], ARGV[2], tonumber(ARGV[3])
if not leads(lease) then
  return { FENCED, current_version() }
end

local deadline_now, server_now = deadline_clock(by)
local deadlines, expiry = table_key('deadlines'), table_key('expiry')
local upto = ms_text(deadline_now)
local state = redis.call('HMGET', expiry, 'released_to', 'held_since_ms')
local released_to = state[1] or '0'
local instances = redis.call('ZCARD', deadlines)
local due = redis.call('ZCOUNT', deadlines, '-inf', '(' .. upto)
local unreleased = redis.call('ZCOUNT', deadlines, '(' .. released_to, '(' .. upto)
redis.call('HSET', expiry, 'last_scan_ms', ms_text(server_now), 'instances', instances, 'due', due)

local reply = { DONE, current_version(), upto, instances, due, unreleased, released_to, state[2] or '' }
local found = redis.call('ZRANGEBYSCORE', deadlines, '-inf', '(' .. upto, 'WITHSCORES', 'LIMIT', 0, limit)
for i = 1, #found, 2 do
  reply[#reply + 1] = found[i]
  reply[#reply + 1] = redis.call('HGET', key_of('instance', found[i]), 'inc') or ''
  reply[#reply + 1] = found[i + 1]
end
return reply
