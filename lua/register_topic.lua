--[[
Registers one topic on brokers that are in the route table (Apache's request 217). For a new topic all of its brokers
must be known. For an existing one the entries are put in order, up to the first unknown broker.

KEYS[1]   meta

ARGV[1]   by     JSON members `"actor":…,"source":…` for the history
ARGV[2]   topic
ARGV[3]   limit  number of topics that a group may have; 0 for any
ARGV[4…]  broker, packed queue data, queue item as JSON

reply     {status, version, number of entries put} DONE, UNCHANGED, UNKNOWN (a broker is; entries before it may have
          been put), LIMITED ({status, version, setting})
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
-- include: limits

local by, topic, limit = ARGV[1], ARGV[2], tonumber(ARGV[3])
local FIRST_ENTRY, ENTRY_LENGTH = 4, 3

check_tables()
for at = FIRST_ENTRY, #ARGV, ENTRY_LENGTH do
  check_hash('broker', ARGV[at])
  check_hash('queues', ARGV[at])
end
local function is_known_topic()
  for _, broker in ipairs(all_broker_names()) do
    if redis.call('HEXISTS', key_of('queues', broker), topic) == 1 then
      return true
    end
  end
  return false
end

local known, unknown = {}, false
for at = FIRST_ENTRY, #ARGV, ENTRY_LENGTH do
  if redis.call('EXISTS', key_of('broker', ARGV[at])) == 0 then
    unknown = true
    break
  end
  known[#known + 1] = at
end
if unknown and (#known == 0 or not is_known_topic()) then
  return { UNKNOWN, current_version(), 0 }
end

for _, at in ipairs(known) do
  local key = key_of('queues', ARGV[at])
  if redis.call('HEXISTS', key, topic) == 0 and grows_beyond(key, 1, limit) then
    return { LIMITED, current_version(), 'max_topics_per_broker' }
  end
end

local put = 0
for _, at in ipairs(known) do
  local broker, packed, item = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local key = key_of('queues', broker)
  local before = redis.call('HGET', key, topic)
  if before ~= packed then
    redis.call('HSET', key, topic, packed)
    append_queue_change(broker, topic, before, item, 'register-topic', by)
    put = put + 1
  end
end
if unknown then
  return { UNKNOWN, current_version(), put }
end
return { put > 0 and DONE or UNCHANGED, current_version(), put }
