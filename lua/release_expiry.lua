--[[
Ends a hold. An operator lets everyone who is due by now expire; the leader ends a hold that has become needless, and lets
nobody go by that.

KEYS[1]   meta

ARGV[1]   by      JSON members `"actor":…,"source":…` for the history
ARGV[2]   expire_due  1: those due by now may expire, however many
ARGV[3]   lease   the leader's whole lease; empty for an operator

reply     {status, version} DONE, UNCHANGED (nothing is held), FENCED
]]
-- include: statuses
-- include: keys
-- include: version
-- include: clock
-- include: changes
-- include: deadline_clock
-- include: leadership

local by, expire_due, lease = ARGV[1], ARGV[2] == '1', ARGV[3]
local expiry = table_key('expiry')
if lease ~= '' and not is_leader(lease) then
  return { FENCED, current_version() }
end
local held = redis.call('HMGET', expiry, 'held_since_ms', 'brokers')
if not held[1] then
  return { UNCHANGED, current_version() }
end
if expire_due then
  redis.call('HSET', expiry, 'released_to', ms_text(deadline_clock(by)))
  redis.call('DEL', table_key('expired'))
end
redis.call('HDEL', expiry, 'held_since_ms', 'brokers')
return { DONE, append_change('expiry-released', by, '"brokers":' .. (held[2] or '[]')) }
