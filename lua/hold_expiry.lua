--[[
Holds removals (include/brake), or updates the list of brokers of a hold that is in force.

KEYS[1]   meta

ARGV[1]   by       JSON members `"actor":…,"source":…` for the history
ARGV[2]   lease    the leader's whole lease
ARGV[3]   brokers  JSON list of their names, of the first ones if they are many

reply     {status, version} DONE, UNCHANGED (it was held before), FENCED
]]
-- include: statuses
-- include: keys
-- include: types
-- include: version
-- include: clock
-- include: changes
-- include: established
-- include: brake
-- include: leadership

local by, lease, brokers = ARGV[1], ARGV[2], ARGV[3]
check_tables()
if not is_leader(lease) then
  return { FENCED, current_version() }
end
local version, has_begun = begin_hold(by, brokers)
if not has_begun then
  redis.call('HSET', table_key('expiry'), 'brokers', brokers)
end
return { has_begun and DONE or UNCHANGED, version }
