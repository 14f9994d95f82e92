--[[
Removes an instance, whatever the reason (unregistered, connection lost, expired). Its instance entry and filters are
deleted, and so is every seat of the group that has its address. A group without seats is removed with all its queues
in the same step. An acting group without a master loses the write permission of its topics. Static mappings stay, as
they do in Apache's name server. Uses: keys, hashes, json, changes, groups, write_permission.
]]
local function delete_instance(instance_name)
  redis.call('DEL', key_of('instance', instance_name))
  redis.call('ZREM', table_key('heartbeats'), instance_name)
  redis.call('ZREM', table_key('deadlines'), instance_name)
  redis.call('HDEL', table_key('lost'), instance_name)
  redis.call('ZREM', table_key('new-instances'), instance_name)
  redis.call('ZREM', table_key('held'), instance_name)
end

local function remove_from_cluster(cluster, broker)
  local key = key_of('cluster', cluster)
  redis.call('SREM', key, broker)
  if redis.call('EXISTS', key) == 0 then
    redis.call('SREM', table_key('clusters'), cluster)
  end
end

local function removed_fields(removal, id, instance, group_removed)
  return '"cluster":' .. quote(removal.cluster) .. ',"broker":' .. quote(removal.broker) .. ',"id":' .. id
    .. ',"addr":' .. quote(removal.address) .. ',"incarnation":' .. quote(instance.inc or '')
    .. ',"last_heartbeat_ms":' .. (removal.last_heartbeat or 'null') .. ',"timeout_ms":' .. (instance.timeout or 'null')
    .. (removal.lost_ms ~= '' and ',"lost_ms":' .. removal.lost_ms or '')
    .. ',"group_removed":' .. (group_removed and 'true' or 'false') .. ',"cause":"' .. removal.cause .. '"'
end

-- Whether the group remains, acts without a master, and has too many queue entries to change in this script (see
-- write_permission).
local function must_stage_removal(removal)
  local group = read_hash(key_of('broker', removal.broker))
  if not group.acting or (group['addr:0'] and group['addr:0'] ~= removal.address) then
    return false
  end
  for _, address in pairs(seats_of(group)) do
    if address ~= removal.address then
      return must_stage_permissions(removal.broker, removal.staged, group.rev or '0')
    end
  end
  return false
end

local function remove_write_when_masterless(removal, by, group)
  if not group.acting or group['addr:0'] then
    return 0
  end
  local total, touched, before = change_permissions(removal.broker, without_write, removal.staged, group.rev or '0')
  if touched > 0 then
    set_revision(removal.broker, append_change('write-permission', by, '"cluster":' .. quote(removal.cluster)
      .. ',"broker":' .. quote(removal.broker) .. ',"rule":"clear-write","perm":' .. PERM_WRITE
      .. ',"touched":' .. touched .. before .. ',"cause":"master-lost"'))
  end
  return total
end

-- Removes an instance that holds no seat.
local function remove_seatless_instance(cluster, broker, instance_name, by)
  delete_instance(instance_name)
  redis.call('HDEL', table_key('filters'), instance_name)
  append_change('group-changed', by, group_fields(cluster, broker, { instance_name }))
end

-- True when another address replaced it in its seat, and when the same address is registered under two clusters: the
-- seat then belongs to the instance of the group's own cluster.
local function holds_no_seat(cluster, address, broker)
  local group = read_hash(key_of('broker', broker))
  local own_instance = key_of('instance', join_instance_name(group.cluster or '', address))
  if group.cluster ~= cluster and redis.call('EXISTS', own_instance) == 1 then
    return true
  end
  for _, holder in pairs(seats_of(group)) do
    if holder == address then
      return false
    end
  end
  return true
end

-- `removal`: cluster, broker, address, cause, lost_ms ('' unless a connection was lost), id (nil: any that the
-- address has), staged. Returns the number of queue entries that were touched, whether anything was removed, and
-- whether the group remains without its smallest id.
local function remove_instance(removal, by)
  local instance_name = join_instance_name(removal.cluster, removal.address)
  local instance = read_hash(key_of('instance', instance_name))
  removal.last_heartbeat = redis.call('ZSCORE', table_key('heartbeats'), instance_name)
  delete_instance(instance_name)
  local had_filters = redis.call('HDEL', table_key('filters'), instance_name) == 1

  local group_key = key_of('broker', removal.broker)
  local group = read_hash(group_key)
  local emptied, remaining, seats = {}, 0, seats_of(group)
  local smallest = smallest_id(seats)
  local leaves_smallest = false
  for id, address in pairs(seats) do
    if address == removal.address then
      leaves_smallest = leaves_smallest or (id == smallest and (removal.id or id) == id)
      emptied[#emptied + 1] = id
      redis.call('HDEL', group_key, 'addr:' .. id)
      group['addr:' .. id] = nil
    else
      remaining = remaining + 1
    end
  end

  local existed = next(group) ~= nil
  local group_removed = existed and remaining == 0
  local touched = 0
  if group_removed then
    touched = redis.call('HLEN', key_of('queues', removal.broker))
    redis.call('UNLINK', key_of('queues', removal.broker))
    redis.call('DEL', group_key)
    remove_from_cluster(removal.cluster, removal.broker)
  end
  for _, id in ipairs(emptied) do
    local version = append_change('broker-removed', by, removed_fields(removal, id, instance, group_removed))
    if not group_removed then
      set_revision(removal.broker, version)
    end
  end
  local changed = #emptied > 0 or group_removed or instance.inc ~= nil or had_filters
  if changed and #emptied == 0 then
    append_change('group-changed', by, group_fields(removal.cluster, removal.broker, { instance_name }))
  end
  if existed and not group_removed then
    touched = touched + remove_write_when_masterless(removal, by, group)
  end
  return touched, changed, leaves_smallest and remaining > 0
end
