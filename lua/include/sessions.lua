--[[
Sessions: which worker has a connection of which instance. `sessions:<worker>` has instance → "<stamp> <incarnation>".
The stamp is the worker's own count of the sessions that it opened: a close request with an older stamp than the
session's closes nothing, so requests may arrive in any order and may be repeated. Uses: keys, clock.
]]
local FIRST_LEASE_MS = 10000  -- for a worker that opens a session before it has renewed its lease for the first time

-- The peer that sent the request: `host:port`, or nil if the worker itself acts.
local function source_of(by)
  local source = string.match(by, '"source":"([^"]*)"')
  return source ~= '' and source or nil
end

local function host_of(source)
  return string.match(source, '^(.*):%d+$') or source
end

-- Records where the connection comes from, because only addresses near it may be dialled when it is lost. Workers that
-- open a session again (open_sessions) do not know it, so the former value stays.
local function record_source(by, instance_name)
  local source = source_of(by)
  if source then
    redis.call('HSET', key_of('instance', instance_name), 'source', source)
  end
end

local function open_session(worker, stamp, instance_name, incarnation, deadline_now)
  local key = key_of('sessions', worker)
  local held = string.match(redis.call('HGET', key, instance_name) or '', '^(%d+) ')
  local newest = math.max(tonumber(stamp), tonumber(held or '0'))
  -- Everything is read before the first write, which also checks the types of the keys.
  local has_lease = redis.call('ZSCORE', table_key('workers'), worker)
  local is_lost = redis.call('HEXISTS', table_key('lost'), instance_name) == 1
  local is_removal_held = redis.call('ZSCORE', table_key('held'), instance_name)
  redis.call('HSET', key, instance_name, ms_text(newest) .. ' ' .. incarnation)
  if not has_lease then
    redis.call('ZADD', table_key('workers'), ms_text(deadline_now + FIRST_LEASE_MS), worker)
    redis.call('HSETNX', META, 'alive_ms', ms_text(server_ms()))  -- so that the deadline clock can pause from now on
  end
  if is_lost then
    redis.call('HDEL', table_key('lost'), instance_name)
  end
  if is_removal_held then
    redis.call('ZREM', table_key('held'), instance_name)
  end
end

local function has_session(instance_name, incarnation)
  for _, worker in ipairs(redis.call('ZRANGE', table_key('workers'), 0, -1)) do
    local held = redis.call('HGET', key_of('sessions', worker), instance_name)
    if held and string.match(held, '^%d+ (.*)$') == incarnation then
      return true
    end
  end
  return false
end
