--[[
Removes a topic's queue entries: all of them, or those of the brokers that a cluster lists. It comes back with the next
registration that carries it. A part ends after some hundred brokers. Nobody is misled in between: a route names the brokers
that still have the topic, as if they had been asked one by one, and a caller that dies leaves a topic to delete again.

KEYS[1]   meta

ARGV[1]   by       JSON members `"actor":…,"source":…` for the history
ARGV[2]   topic
ARGV[3]   cluster  empty for all
ARGV[4]   place    where the part before ended, empty to begin
ARGV[5…]  broker, its cluster: those whose entry workers still show though the store has lost it; the history says that it
          is gone. Given any, the part is about these alone

reply     {status, version, entries removed, place to go on from} DONE, UNCHANGED (nobody in this part had it). An empty
          place: that was the last part, or the one before the first
]]
-- include: statuses
-- include: keys
-- include: version
-- include: json
-- include: clock
-- include: changes
-- include: groups
-- include: topic_queues

local by, topic, cluster, place = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local FIRST_CARRIED, CARRIED_LENGTH, BROKERS_PER_PART = 5, 2, 250

local item, removed, looked_at = '{"t":' .. quote(topic) .. ',"x":1}', 0, 0

local function tell(broker, last_cluster)
  append_queue_change(broker, item, 'delete-topic', by, last_cluster)
  removed = removed + 1
end

local function answer(next_place)
  return { removed > 0 and DONE or UNCHANGED, current_version(), removed, next_place }
end

-- Returns where to go on in this cluster: '0' for its end.
local function look_through(name, cursor)
  repeat
    local page = redis.call('SSCAN', key_of('cluster', name), cursor, 'COUNT', BROKERS_PER_PART)
    cursor = page[1]
    table.sort(page[2])
    for _, broker in ipairs(page[2]) do
      if redis.call('HDEL', key_of('queues', broker), topic) == 1 then
        tell(broker, name)
      end
    end
    looked_at = looked_at + #page[2]
  until cursor == '0' or looked_at >= BROKERS_PER_PART
  return cursor
end

for at = FIRST_CARRIED, #ARGV, CARRIED_LENGTH do
  if cluster == '' or redis.call('SISMEMBER', key_of('cluster', cluster), ARGV[at]) == 1 then
    redis.call('HDEL', key_of('queues', ARGV[at]), topic)
  end
  tell(ARGV[at], ARGV[at + 1])
end
if removed > 0 then
  return answer(place)
end

local clusters = cluster ~= '' and { cluster } or redis.call('SMEMBERS', table_key('clusters'))
table.sort(clusters)
local begun_at, begun = string.match(place, '^(%d+) (.*)$')
for _, name in ipairs(clusters) do
  if not begun or name >= begun then
    if looked_at >= BROKERS_PER_PART then
      return answer('0 ' .. name)
    end
    local cursor = look_through(name, name == begun and begun_at or '0')
    if cursor ~= '0' then
      return answer(cursor .. ' ' .. name)
    end
  end
end
return answer('')
