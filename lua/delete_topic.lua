--[[
Deletes a topic's queue entries, all of them or those of the brokers that a cluster lists. The next registration that
names the topic brings it back. One run handles a few hundred brokers. What readers see in between is correct, because
a route names the brokers that still have the topic, as if each had been changed separately. If the caller dies in
between, the topic has to be deleted again.

KEYS[1]   meta

ARGV[1]   by       JSON members `"actor":…,"source":…` for the history
ARGV[2]   topic
ARGV[3]   cluster  empty for all
ARGV[4]   cursor   where the run before ended, empty to begin
ARGV[5…]  broker, its cluster: brokers whose entry workers still show although the store has lost it, so append the
          deletion even if the entry is not here. If there are any, this run handles no others

reply     {status, version, number of entries deleted, cursor} DONE, UNCHANGED (no broker of this run had it). cursor:
          empty after the last run, and while only brokers that were passed have been handled
]]
-- include: statuses
-- include: keys
-- include: types
-- include: version
-- include: json
-- include: clock
-- include: changes
-- include: integers
-- include: groups
-- include: topic_queues

local by, topic, cluster, cursor = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local FIRST_CARRIED, CARRIED_LENGTH, BROKERS_PER_RUN = 5, 2, 250

check_tables()
for at = FIRST_CARRIED, #ARGV, CARRIED_LENGTH do
  check_hash('queues', ARGV[at])
  check_hash('broker', ARGV[at])
end
local item, deleted, handled = '{"t":' .. quote(topic) .. ',"x":1}', 0, 0

local function append_deletion(broker, before, last_cluster)
  append_queue_change(broker, topic, before, item, 'delete-topic', by, last_cluster)
  deleted = deleted + 1
end

local function answer(next_cursor)
  return { deleted > 0 and DONE or UNCHANGED, current_version(), deleted, next_cursor }
end

-- A broker whose keys have a wrong type has no topics; it must not stop the script after others were changed.
local function entry_of(broker)
  if not has_type(key_of('queues', broker), 'hash') or not has_type(key_of('broker', broker), 'hash') then
    return false
  end
  return redis.call('HGET', key_of('queues', broker), topic)
end

-- Returns the cursor in this cluster's set of brokers, '0' at its end.
local function delete_in_cluster(name, at)
  repeat
    local page = redis.call('SSCAN', key_of('cluster', name), at, 'COUNT', BROKERS_PER_RUN)
    at = page[1]
    table.sort(page[2])
    for _, broker in ipairs(page[2]) do
      local before = entry_of(broker)
      if before then
        redis.call('HDEL', key_of('queues', broker), topic)
        append_deletion(broker, before, name)
      end
    end
    handled = handled + #page[2]
  until at == '0' or handled >= BROKERS_PER_RUN
  return at
end

for at = FIRST_CARRIED, #ARGV, CARRIED_LENGTH do
  local before
  if cluster == '' or redis.call('SISMEMBER', key_of('cluster', cluster), ARGV[at]) == 1 then
    before = redis.call('HGET', key_of('queues', ARGV[at]), topic)
    redis.call('HDEL', key_of('queues', ARGV[at]), topic)
  end
  append_deletion(ARGV[at], before, ARGV[at + 1])
end
if deleted > 0 then
  return answer(cursor)
end

local clusters = cluster ~= '' and { cluster } or redis.call('SMEMBERS', table_key('clusters'))
table.sort(clusters)
local first_cursor, first_cluster = string.match(cursor, '^(%d+) (.*)$')
for _, name in ipairs(clusters) do
  if not first_cluster or name >= first_cluster then
    if handled >= BROKERS_PER_RUN then
      return answer('0 ' .. name)
    end
    local at = delete_in_cluster(name, name == first_cluster and first_cursor or '0')
    if at ~= '0' then
      return answer(at .. ' ' .. name)
    end
  end
end
return answer('')
