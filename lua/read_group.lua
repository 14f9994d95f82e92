--[[
Reads one group for a replica: some of its topics, or one page of all of them. It writes nothing.

KEYS[1]   meta

ARGV[1]   broker  name of the group
ARGV[2]   cursor  empty: read the topics that follow. Else read all topics, page by page: where the page before ended,
                  0 for the first
ARGV[3]   limit   number of queue entries that one page may have, about; 0 for any number
ARGV[4…]  topic

reply     {clusters that list the group, group as field and value, queue entries (topic and value, or the values of
          the topics that follow), mappings as topic and value, cursor}; no status, since nothing can go wrong.
          cursor: 0 after the last page. Clusters and mappings come with the first page only
]]
-- include: keys
-- include: json
-- include: integers
-- include: groups
-- include: slices

local broker, cursor, limit = ARGV[1], ARGV[2], tonumber(ARGV[3])
local FIRST_TOPIC = 4

local key = key_of('queues', broker)
local queues, next_cursor = {}, '0'
if cursor == '' then
  for first = FIRST_TOPIC, #ARGV, SLICE do
    local values = redis.call('HMGET', key, unpack(ARGV, first, math.min(first + SLICE - 1, #ARGV)))
    for _, value in ipairs(values) do
      queues[#queues + 1] = value
    end
  end
elseif cursor == '0' and (limit == 0 or redis.call('HLEN', key) <= limit) then
  queues = redis.call('HGETALL', key)
else
  local page = redis.call('HSCAN', key, cursor, 'COUNT', limit)
  next_cursor, queues = page[1], page[2]
end
local group = redis.call('HGETALL', key_of('broker', broker))
if cursor ~= '' and cursor ~= '0' then
  return { {}, group, queues, {}, next_cursor }
end
return { clusters_of(broker), group, queues, redis.call('HGETALL', key_of('mapping', broker)), next_cursor }
