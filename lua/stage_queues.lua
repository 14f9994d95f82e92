--[[
Puts topics into a staged table, removes others from it, and stages the queue items for the history. Nothing becomes
visible.

KEYS[1]   meta

ARGV[1]   staged   name of the staged table, random
ARGV[2]   entries  number of entries that the script before left in it
ARGV[3]   chunks   number of chunks of queue items that the script before left
ARGV[4]   put      number of topics to put
ARGV[5]   dropped  number of topics to remove
ARGV[6…]  topic, packed queue data · then topics to remove · then chunks of at most 1,000 queue items for the history:
          kind of chunk (n, d or x for new, differing, dropped) and number of items as `<kind> <number>`, JSON items,
          JSON items that the topics have until then

reply     {status, version, entries, chunks} DONE, UNKNOWN (the staged table has expired: start over)
]]
-- include: statuses
-- include: keys
-- include: types
-- include: version
-- include: slices
-- include: staging

local staged, entries, chunks = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local put, dropped = tonumber(ARGV[4]), tonumber(ARGV[5])
local FIRST_ITEM = 6
local FIRST_DROPPED = FIRST_ITEM + 2 * put
local FIRST_CHUNK = FIRST_DROPPED + dropped

check_hash('staged', staged)
check_hash('staged-changes', staged)
if not has_staged(staged, entries, chunks) then
  return { UNKNOWN, current_version(), 0, 0 }
end
call_in_slices('HSET', key_of('staged', staged), ARGV, FIRST_ITEM, FIRST_DROPPED - 1)
call_in_slices('HDEL', key_of('staged', staged), ARGV, FIRST_DROPPED, FIRST_CHUNK - 1)
for at = FIRST_CHUNK, #ARGV, 3 do
  chunks = chunks + 1
  redis.call('HSET', key_of('staged-changes', staged), 'kind:' .. chunks, ARGV[at], 'items:' .. chunks, ARGV[at + 1],
    'former:' .. chunks, ARGV[at + 2])
end
local entry_count, chunk_count = keep_staged(staged)
return { DONE, current_version(), entry_count, chunk_count }
