--[[
Prepares a large queue table in parts, out of everyone's sight; register_broker then puts it in place in one step. The first
part starts from a copy of the table that stands. Left-overs vanish by themselves.

KEYS[1]   meta

ARGV[1]   staged   name of the preparation, random
ARGV[2]   broker   name of the group
ARGV[3]   first    1: the first part
ARGV[4]   put      number of topics to put
ARGV[5…]  topic, packed queue data · then topics to remove

reply     {status, version} DONE, UNKNOWN (the preparation is gone: start over)
]]
-- include: statuses
-- include: keys
-- include: version
-- include: slices

local staged, broker, is_first, put = ARGV[1], ARGV[2], ARGV[3] == '1', tonumber(ARGV[4])
local FIRST_ITEM, STAGED_FOR_MS = 5, 60000
local key = key_of('staged', staged)

if is_first then
  redis.call('COPY', key_of('queues', broker), key, 'REPLACE')
elseif redis.call('EXISTS', key) == 0 then
  return { UNKNOWN, current_version() }
end
call_in_slices('HSET', key, ARGV, FIRST_ITEM, FIRST_ITEM + 2 * put - 1)
call_in_slices('HDEL', key, ARGV, FIRST_ITEM + 2 * put, #ARGV)
redis.call('PEXPIRE', key, STAGED_FOR_MS)
return { DONE, current_version() }
