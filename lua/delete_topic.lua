--[[
Removes a topic's queue entries: all of them, or those of the brokers that a cluster lists. It comes back with the next
registration that carries it.

KEYS[1]   meta

ARGV[1]   by       JSON members `"actor":…,"source":…` for the history
ARGV[2]   topic
ARGV[3]   cluster  empty for all
ARGV[4…]  brokers whose entry workers still show though the store has lost it: the history says that it is gone

reply     {status, version, entries removed} DONE, UNCHANGED (nobody had it)
]]
-- include: statuses
-- include: keys
-- include: version
-- include: json
-- include: clock
-- include: changes
-- include: groups
-- include: topic_queues

local by, topic, cluster = ARGV[1], ARGV[2], ARGV[3]
local FIRST_CARRIED = 4

local brokers = cluster == '' and all_broker_names() or redis.call('SMEMBERS', key_of('cluster', cluster))
local item, removed, gone = '{"t":' .. quote(topic) .. ',"x":1}', 0, {}
for _, broker in ipairs(brokers) do
  if redis.call('HDEL', key_of('queues', broker), topic) == 1 then
    append_queue_change(broker, item, 'delete-topic', by)
    removed = removed + 1
    gone[broker] = true
  end
end
for at = FIRST_CARRIED, #ARGV do
  if not gone[ARGV[at]] then
    append_queue_change(ARGV[at], item, 'delete-topic', by)
    removed = removed + 1
  end
end
return { removed > 0 and DONE or UNCHANGED, current_version(), removed }
