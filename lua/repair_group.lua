--[[
Writes back missing keys of one group, from the replica of a worker that has applied the whole history: they were
deleted without a change. Only absent keys and fields are written. The group's revision
rises, so its brokers register in full next.

KEYS[1]   meta

ARGV[1]   by         JSON members `"actor":…,"source":…` for the history
ARGV[2]   position   where the replica stands, see restoring
ARGV[3]   broker     name of the group
ARGV[4]   cluster    of the group; empty: there is no group
ARGV[5]   zone       empty for none
ARGV[6]   acting     1 or 0
ARGV[7]   revision   of the group
ARGV[8]   seats      number of seats
ARGV[9]   clusters   number of clusters that list the group
ARGV[10]  mappings   number of static mappings
ARGV[11]  instances  number of instances
ARGV[12…] id, address · cluster · topic, mapping as JSON · instance, id, incarnation, timeout, HA address, data
          version, filters as JSON or empty · topic, packed queue data, queue item as JSON

reply     {status, version, number written} DONE, UNCHANGED (nothing was absent), STALE (the store has another position)
]]
-- include: statuses
-- include: keys
-- include: types
-- include: version
-- include: json
-- include: clock
-- include: changes
-- include: deadline_clock
-- include: integers
-- include: groups
-- include: restoring

local by, position, broker, cluster, zone, acting = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6] == '1'
local revision, seats, clusters = ARGV[7], tonumber(ARGV[8]), tonumber(ARGV[9])
local mappings, instances = tonumber(ARGV[10]), tonumber(ARGV[11])
local FIRST_ITEM, INSTANCE_LENGTH, QUEUE_LENGTH = 12, 7, 3

check_tables()
check_group(cluster, broker)
for item = FIRST_ITEM + 2 * seats, FIRST_ITEM + 2 * seats + clusters - 1 do
  check_type(key_of('cluster', ARGV[item]), 'set')
end
local first_instance = FIRST_ITEM + 2 * seats + clusters + 2 * mappings
for item = first_instance, first_instance + INSTANCE_LENGTH * instances - 1, INSTANCE_LENGTH do
  check_hash('instance', ARGV[item])
end
if not is_at(position) then
  return { STALE, current_version(), 0 }
end
-- Before the position has moved: a pause that ends now appends an entry.
local deadline_now = deadline_clock(by)
local written, at = 0, FIRST_ITEM

local function put_field(key, field, value)
  local is_new = redis.call('HSETNX', key, field, value)
  written = written + is_new
  return is_new == 1
end

local function put_group()
  local key = key_of('broker', broker)
  if cluster ~= '' then
    put_field(key, 'cluster', cluster)
    put_field(key, 'rev', revision)
  end
  if zone ~= '' then
    put_field(key, 'zone', zone)
  end
  if acting then
    put_field(key, 'acting', '1')
  end
  for _ = 1, seats do
    put_field(key, 'addr:' .. ARGV[at], ARGV[at + 1])
    at = at + 2
  end
end

local function put_clusters()
  for _ = 1, clusters do
    written = written + redis.call('SADD', table_key('clusters'), ARGV[at])
    written = written + redis.call('SADD', key_of('cluster', ARGV[at]), broker)
    at = at + 1
  end
end

local function put_mappings()
  if mappings > 0 then
    written = written + redis.call('SADD', table_key('mapped'), broker)
  end
  for _ = 1, mappings do
    put_field(key_of('mapping', broker), ARGV[at], ARGV[at + 1])
    at = at + 2
  end
end

local function put_instance(name, id, incarnation, timeout, ha, version, filters)
  local key = key_of('instance', name)
  if redis.call('EXISTS', key) == 0 then
    redis.call('HSET', key, 'broker', broker, 'id', id, 'inc', incarnation, 'timeout', timeout, 'ha', ha, 'dv', version)
    written = written + 1
  end
  if filters ~= '' then
    put_field(table_key('filters'), name, filters)
  end
  written = written
    + redis.call('ZADD', table_key('deadlines'), 'NX', ms_text(deadline_now + tonumber(timeout)), name)
end

-- Returns the names of all instances, for the history.
local function put_instances()
  local names = {}
  for _ = 1, instances do
    put_instance(unpack(ARGV, at, at + INSTANCE_LENGTH - 1))
    names[#names + 1] = ARGV[at]
    at = at + INSTANCE_LENGTH
  end
  return names
end

-- Returns the JSON items of the topics that were absent.
local function put_queues()
  local items = {}
  for topic_at = at, #ARGV, QUEUE_LENGTH do
    if put_field(key_of('queues', broker), ARGV[topic_at], ARGV[topic_at + 1]) then
      items[#items + 1] = ARGV[topic_at + 2]
    end
  end
  return items
end

put_group()
put_clusters()
put_mappings()
local names = put_instances()
local is_group_changed = written > 0
local items = put_queues()
if written == 0 then
  return { UNCHANGED, current_version(), 0 }
end
local version
local owner = cluster ~= '' and cluster or clusters_of(broker)[1] or ''
if is_group_changed then
  version = append_change('group-changed', by, group_fields(owner, broker, names))
end
if #items > 0 then
  version = append_change('queues-changed', by, '"cluster":' .. quote(owner) .. ',"broker":' .. quote(broker)
    .. ',"queues":[' .. table.concat(items, ',') .. '],"before":[],"cause":"repaired"')
end
if cluster ~= '' then
  set_revision(broker, version)
end
return { DONE, version, written }
