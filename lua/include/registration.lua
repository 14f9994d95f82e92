--[[
The single effects of a registration, each in a function of its own; register_broker tells the story. `said` is what the
broker said, `decision` what decide_seat made of it. Uses: keys, hashes, json,
changes, groups, removal.
]]
-- Cluster entry, group and its flags: they are marked even by one that is turned down or refused. Says whether they changed.
local function mark_group(said, group)
  local key = key_of('broker', said.broker)
  redis.call('SADD', table_key('clusters'), said.cluster)
  local has_joined = redis.call('SADD', key_of('cluster', said.cluster), said.broker) == 1
  local is_new = group.cluster == nil
  if is_new then
    redis.call('HSET', key, 'cluster', said.cluster)
  end
  local acts, acted = said.acting == '1', group.acting == '1'
  local flags_changed = (group.zone or '') ~= said.zone or acts ~= acted
  if flags_changed then
    redis.call('HDEL', key, 'zone', 'acting')
    if said.zone ~= '' then
      redis.call('HSET', key, 'zone', said.zone)
    end
    if acts then
      redis.call('HSET', key, 'acting', '1')
    end
  end
  return is_new or has_joined or flags_changed
end

local function tell_seat_left(said, id, address, cause)
  local instance_name = join_instance_name(said.cluster, address)
  set_revision(said.broker, append_change('broker-removed', said.by, removed_fields({ cluster = said.cluster,
    broker = said.broker, address = address, cause = cause, lost_ms = '',
    last_heartbeat = redis.call('ZSCORE', table_key('heartbeats'), instance_name) }, id,
    read_hash(key_of('instance', instance_name)), false)))
end

local function leave_former_ids(said, decision, cause)
  for _, id in ipairs(decision.former_ids) do
    redis.call('HDEL', key_of('broker', said.broker), 'addr:' .. id)
    tell_seat_left(said, id, said.address, cause)
  end
end

-- Turned down or refused: what was marked stays, an id it held before is lost, and one that was turned down is not alive.
local function decline(said, decision, instance, group_marked)
  local instance_name = join_instance_name(said.cluster, said.address)
  leave_former_ids(said, decision, 'turned-down')
  if decision.turned_down then
    drop_instance(instance_name)
  end
  if group_marked or (decision.turned_down and instance.inc) then
    set_revision(said.broker, append_change('group-changed', said.by, group_fields(said.cluster, said.broker, { instance_name })))
  end
end

local function take_seat(said, decision)
  leave_former_ids(said, decision, 'moved')
  if decision.takes_seat and decision.holder then
    tell_seat_left(said, said.id, decision.holder, 'replaced')
  end
  redis.call('HSET', key_of('broker', said.broker), 'addr:' .. said.id, said.address)
end

-- Says whether the stored list is another one now.
local function store_filters(said, instance_name)
  local key = table_key('filters')
  if said.filters == '[]' then
    return redis.call('HDEL', key, instance_name) == 1
  end
  if said.filters == '' or redis.call('HGET', key, instance_name) == said.filters then
    return false
  end
  redis.call('HSET', key, instance_name, said.filters)
  return true
end

local function seat_fields(said, decision, incarnation, filters_changed)
  return '"cluster":' .. quote(said.cluster) .. ',"broker":' .. quote(said.broker) .. ',"id":' .. said.id
    .. ',"addr":' .. quote(said.address) .. ',"incarnation":"' .. incarnation .. '","first":'
    .. tostring(decision.is_first) .. ',"zone":' .. (said.zone ~= '' and quote(said.zone) or 'null') .. ',"acting":'
    .. tostring(said.acting == '1') .. ',"ha":' .. quote(said.ha) .. ',"timeout_ms":' .. said.timeout
    .. (filters_changed and ',"filters":true' or '')
end

-- The group of a host whose static mappings were written here has changed too.
local function raise_revisions(said, mapped, version)
  set_revision(said.broker, version)
  for _, host in ipairs(mapped) do
    if host ~= said.broker and redis.call('EXISTS', key_of('broker', host)) == 1 then
      set_revision(host, version)
    end
  end
end

-- A digest says: this very registration would change nothing. It holds as long as the group does not change; several are
-- kept, since a broker may send its table in parts.
local DIGEST_LENGTH, DIGESTS_KEPT = 32, 16

local function learnt_digests(said, instance, has_changed, revision)
  if has_changed or instance.rev ~= revision then
    return said.digest
  end
  return string.sub((instance.digests or '') .. said.digest, -DIGEST_LENGTH * DIGESTS_KEPT)
end
