--[[
Puts topics into a staged table and removes others from it. Nothing becomes visible.

KEYS[1]   meta

ARGV[1]   staged   name of the staged table, random
ARGV[2]   entries  number of entries that the script before left in it
ARGV[3]   put      number of topics to put
ARGV[4…]  topic, packed queue data · then topics to remove

reply     {status, version, entries} DONE, UNKNOWN (the staged table has expired: start over)
]]
-- include: statuses
-- include: keys
-- include: version
-- include: slices
-- include: staging

local staged, entries, put = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local FIRST_ITEM = 4
local key = key_of('staged', staged)

if not has_staged(staged, entries) then
  return { UNKNOWN, current_version(), 0 }
end
call_in_slices('HSET', key, ARGV, FIRST_ITEM, FIRST_ITEM + 2 * put - 1)
call_in_slices('HDEL', key, ARGV, FIRST_ITEM + 2 * put, #ARGV)
return { DONE, current_version(), keep_staged(staged) }
