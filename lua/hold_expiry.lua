--[[
Holds a mass expiry: no broker expires until an operator releases the hold, or the brokers send heartbeats again.

KEYS[1]   meta

ARGV[1]   by       JSON members `"actor":…,"source":…` for the history
ARGV[2]   lease    the leader's whole lease
ARGV[3]   brokers  JSON list of their names, of the first ones if they are many

reply     {status, version} DONE, UNCHANGED (it was held before), FENCED
]]
-- include: statuses
-- include: keys
-- include: version
-- include: clock
-- include: changes
-- include: leadership

local by, lease, brokers = ARGV[1], ARGV[2], ARGV[3]
local expiry = table_key('expiry')
if not is_leader(lease) then
  return { FENCED, current_version() }
end
redis.call('HSET', expiry, 'brokers', brokers)
if redis.call('HSETNX', expiry, 'held_since_ms', ms_text(server_ms())) == 0 then
  return { UNCHANGED, current_version() }
end
return { DONE, append_change('expiry-held', by, '"brokers":' .. brokers) }
