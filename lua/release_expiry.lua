--[[
Ends a hold. When an operator does it, the brokers that are due now may expire, and the next scan makes those due whose
removal is held. The leader ends a hold that is no longer needed, which removes no broker: their deadlines decide.

KEYS[1]   meta

ARGV[1]   by          JSON members `"actor":…,"source":…` for the history
ARGV[2]   expire_due  1: all that are due now may expire, however many
ARGV[3]   lease       the leader's whole lease; empty for an operator

reply     {status, version} DONE, UNCHANGED (there is no hold), FENCED
]]
-- include: statuses
-- include: keys
-- include: types
-- include: version
-- include: clock
-- include: changes
-- include: deadline_clock
-- include: leadership

local by, expire_due, lease = ARGV[1], ARGV[2] == '1', ARGV[3]
check_tables()
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
  redis.call('DEL', table_key('removals'))
else
  redis.call('DEL', table_key('held'))
end
redis.call('HDEL', expiry, 'held_since_ms', 'brokers')
return { DONE, append_change('expiry-released', by, '"brokers":' .. (held[2] or '[]')) }
