--[[
How an instance leaves, whatever the reason (unregistered, lost, expired): its live entry and filters go; every seat of the
named group that holds its address is emptied; an emptied group goes with all its queues in one step; an acting group
without a master loses the write bit. Static mappings stay, as they do in Apache's. Returns the queue entries touched,
whether anything was there, and whether the group lives on without its smallest id. Uses: keys, hashes, json, changes, groups, write_permission.
]]
local function drop_instance(instance_name)
  redis.call('DEL', key_of('instance', instance_name))
  redis.call('ZREM', table_key('heartbeats'), instance_name)
  redis.call('ZREM', table_key('deadlines'), instance_name)
  redis.call('HDEL', table_key('lost'), instance_name)
end

local function leave_cluster(cluster, broker)
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

local function remove_write_when_masterless(removal, by, group)
  if not group.acting or group['addr:0'] then
    return 0
  end
  local total, touched = change_permissions(removal.broker, without_write)
  if touched > 0 then
    set_revision(removal.broker, append_change('write-permission', by, '"cluster":' .. quote(removal.cluster)
      .. ',"broker":' .. quote(removal.broker) .. ',"rule":"clear-write","perm":' .. PERM_WRITE
      .. ',"touched":' .. touched .. ',"cause":"master-lost"'))
  end
  return total
end

-- An instance that holds no seat (any more) leaves alone.
local function drop_alone(cluster, broker, instance_name, by)
  drop_instance(instance_name)
  redis.call('HDEL', table_key('filters'), instance_name)
  append_change('group-changed', by, group_fields(cluster, broker, { instance_name }))
end

-- Its address was replaced in its seat, or is registered under two clusters, of which the group's own one keeps the seat.
local function holds_no_seat(cluster, address, broker)
  local group = read_hash(key_of('broker', broker))
  if group.cluster ~= cluster and redis.call('EXISTS', key_of('instance', join_instance_name(group.cluster or '', address))) == 1 then
    return true
  end
  for _, holder in pairs(seats_of(group)) do
    if holder == address then
      return false
    end
  end
  return true
end

-- removal: cluster, broker, address, cause, lost_ms ('' unless a connection was lost), id (nil: whichever the address has)
local function remove_member(removal, by)
  local instance_name = join_instance_name(removal.cluster, removal.address)
  local instance = read_hash(key_of('instance', instance_name))
  removal.last_heartbeat = redis.call('ZSCORE', table_key('heartbeats'), instance_name)
  drop_instance(instance_name)
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
    leave_cluster(removal.cluster, removal.broker)
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
