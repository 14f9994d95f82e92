--[[
Reads and marks groups. `broker:<name>` has cluster, zone, acting, rev and `addr:<id>` for each seat. In an acting
group a slave may act as the master (`enableActingMaster`). `rev`, the revision, is the version of the last change of
seats, flags, queues or mappings; registration digests and differences are valid for one revision. Uses: keys, json, integers.
]]
local function seats_of(group)
  local seats = {}
  for field, value in pairs(group) do
    local id = string.match(field, '^addr:(.+)$')
    if id then
      seats[id] = value
    end
  end
  return seats
end

local function smallest_id(seats)
  local smallest
  for id in pairs(seats) do
    if not smallest or is_less(id, smallest) then
      smallest = id
    end
  end
  return smallest
end

local function set_revision(broker, version)
  redis.call('HSET', key_of('broker', broker), 'rev', version)
end

-- The names of the clusters that list this group.
local function clusters_of(broker)
  local found = {}
  for _, cluster in ipairs(redis.call('SMEMBERS', table_key('clusters'))) do
    if redis.call('SISMEMBER', key_of('cluster', cluster), broker) == 1 then
      found[#found + 1] = cluster
    end
  end
  table.sort(found)
  return found
end

local function all_broker_names()
  local names, seen = {}, {}
  for _, cluster in ipairs(redis.call('SMEMBERS', table_key('clusters'))) do
    for _, name in ipairs(redis.call('SMEMBERS', key_of('cluster', cluster))) do
      if not seen[name] then
        seen[name] = true
        names[#names + 1] = name
      end
    end
  end
  table.sort(names)
  return names
end

-- The fields of a `group-changed` entry: the group after the change, and the instances that changed or were removed
-- with it. `group_removed` says that there is no group, and no queue entry of it either.
local function group_fields(cluster, broker, instance_names)
  local flags = redis.call('HMGET', key_of('broker', broker), 'zone', 'acting')
  return '"cluster":' .. quote(cluster) .. ',"broker":' .. quote(broker)
    .. ',"clusters":' .. string_list(clusters_of(broker))
    .. ',"zone":' .. (flags[1] and quote(flags[1]) or 'null') .. ',"acting":' .. (flags[2] and 'true' or 'false')
    .. ',"instances":' .. string_list(instance_names)
    .. (redis.call('EXISTS', key_of('broker', broker)) == 0 and ',"group_removed":true' or '')
end
