--[[
The effects of a registration, one function each; register_broker calls them in order. `registration` has the fields
that the broker sent, `decision` is the result of decide_seat. Uses: keys, hashes, json, changes, groups, removal.
]]
-- Records the cluster, the group and its flags. They are recorded even when the registration is turned down or
-- refused. Returns whether they changed.
local function mark_group(registration, group)
  local key = key_of('broker', registration.broker)
  redis.call('SADD', table_key('clusters'), registration.cluster)
  local has_joined = redis.call('SADD', key_of('cluster', registration.cluster), registration.broker) == 1
  local is_new = group.cluster == nil
  if is_new then
    redis.call('HSET', key, 'cluster', registration.cluster)
  end
  local acts, acted = registration.acting == '1', group.acting == '1'
  local flags_changed = (group.zone or '') ~= registration.zone or acts ~= acted
  if flags_changed then
    redis.call('HDEL', key, 'zone', 'acting')
    if registration.zone ~= '' then
      redis.call('HSET', key, 'zone', registration.zone)
    end
    if acts then
      redis.call('HSET', key, 'acting', '1')
    end
  end
  return is_new or has_joined or flags_changed
end

local function append_seat_removed(registration, id, address, cause)
  local instance_name = join_instance_name(registration.cluster, address)
  set_revision(registration.broker, append_change('broker-removed', registration.by, removed_fields({
    cluster = registration.cluster, broker = registration.broker, address = address, cause = cause, lost_ms = '',
    last_heartbeat = redis.call('ZSCORE', table_key('heartbeats'), instance_name) }, id,
    read_hash(key_of('instance', instance_name)), false)))
end

local function leave_former_seats(registration, decision, cause)
  for _, id in ipairs(decision.former_ids) do
    redis.call('HDEL', key_of('broker', registration.broker), 'addr:' .. id)
    append_seat_removed(registration, id, registration.address, cause)
  end
end

-- Turned down or refused: the address also loses the seats that it had under other ids, and one that is turned down
-- is not live.
local function decline(registration, decision, instance, group_marked)
  local instance_name = join_instance_name(registration.cluster, registration.address)
  leave_former_seats(registration, decision, 'turned-down')
  if decision.is_turned_down then
    delete_instance(instance_name)
  end
  if group_marked or (decision.is_turned_down and instance.inc) then
    set_revision(registration.broker, append_change('group-changed', registration.by,
      group_fields(registration.cluster, registration.broker, { instance_name })))
  end
end

local function take_seat(registration, decision)
  leave_former_seats(registration, decision, 'moved')
  if decision.takes_seat and decision.holder then
    append_seat_removed(registration, registration.id, decision.holder, 'replaced')
  end
  redis.call('HSET', key_of('broker', registration.broker), 'addr:' .. registration.id, registration.address)
end

-- Returns whether the stored list of filter servers changed.
local function store_filters(registration, instance_name)
  local key = table_key('filters')
  if registration.filters == '[]' then
    return redis.call('HDEL', key, instance_name) == 1
  end
  if registration.filters == '' or redis.call('HGET', key, instance_name) == registration.filters then
    return false
  end
  redis.call('HSET', key, instance_name, registration.filters)
  return true
end

-- The former values of those fields of a seat that the registration changed, as JSON members; empty if there are none.
-- An address that takes a seat is new in it, so of the values of an instance only those of an instance that held the
-- seat are former.
local function values_before(registration, decision, group, instance)
  local before = {}
  local function add(name, former)
    before[#before + 1] = '"' .. name .. '":' .. former
  end
  if decision.takes_seat then
    add('addr', decision.holder and quote(decision.holder) or 'null')
  end
  if group.cluster and (group.zone or '') ~= registration.zone then
    add('zone', group.zone and quote(group.zone) or 'null')
  end
  if group.cluster and (group.acting == '1') ~= (registration.acting == '1') then
    add('acting', tostring(group.acting == '1'))
  end
  if not decision.takes_seat and instance.inc then
    if instance.ha ~= registration.ha then
      add('ha', quote(instance.ha or ''))
    end
    if instance.timeout ~= registration.timeout then
      add('timeout_ms', instance.timeout or 'null')
    end
  end
  return table.concat(before, ',')
end

local function seat_fields(registration, decision, incarnation, filters_changed)
  return '"cluster":' .. quote(registration.cluster) .. ',"broker":' .. quote(registration.broker)
    .. ',"id":' .. registration.id .. ',"addr":' .. quote(registration.address) .. ',"incarnation":"' .. incarnation
    .. '","first":' .. tostring(decision.is_first)
    .. ',"zone":' .. (registration.zone ~= '' and quote(registration.zone) or 'null')
    .. ',"acting":' .. tostring(registration.acting == '1') .. ',"ha":' .. quote(registration.ha)
    .. ',"timeout_ms":' .. registration.timeout .. (filters_changed and ',"filters":true' or '')
end

-- The hosts whose static mappings were written have changed too.
local function raise_revisions(registration, mapped, version)
  set_revision(registration.broker, version)
  for _, host in ipairs(mapped) do
    if host ~= registration.broker and redis.call('EXISTS', key_of('broker', host)) == 1 then
      set_revision(host, version)
    end
  end
end

-- A registration digest is stored when repeating that registration would change nothing, and holds for one revision
-- of the group. Several are kept, because a broker may send its table in parts.
local DIGEST_LENGTH, DIGESTS_KEPT = 32, 16

local function digests_after(registration, instance, has_changed, revision)
  if has_changed or instance.rev ~= revision then
    return registration.digest
  end
  return string.sub((instance.digests or '') .. registration.digest, -DIGEST_LENGTH * DIGESTS_KEPT)
end
