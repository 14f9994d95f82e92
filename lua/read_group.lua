--[[
One group as it is at one instant: what a replica reads when a change names it. Writes nothing.

KEYS[1]   meta

ARGV[1]   broker  name of the group
ARGV[2]   all     1: all queue entries; 0: those of the topics that follow
ARGV[3…]  topic

reply     {clusters that list it, group as field and value, queue entries (topic and value, or the values asked for),
          mappings as topic and value}; no status: nothing can go wrong
]]
-- include: keys
-- include: json
-- include: groups
-- include: slices

local broker, all = ARGV[1], ARGV[2] == '1'
local FIRST_TOPIC = 3

local queues
if all then
  queues = redis.call('HGETALL', key_of('queues', broker))
else
  queues = {}
  for first = FIRST_TOPIC, #ARGV, SLICE do
    local values = redis.call('HMGET', key_of('queues', broker), unpack(ARGV, first, math.min(first + SLICE - 1, #ARGV)))
    for _, value in ipairs(values) do
      queues[#queues + 1] = value
    end
  end
end
return { clusters_naming(broker), redis.call('HGETALL', key_of('broker', broker)), queues,
  redis.call('HGETALL', key_of('mapping', broker)) }
