--[[
Removes a worker that has stopped or died, with its sessions. The deadlines of the brokers that were connected to it
move to one full timeout after it could last receive their heartbeats. When it died, those of them that no other worker
has a session of count as lost connections, so the leader investigates them (adopt_lost_connections). One run handles
INSTANCES_PER_RUN sessions, or fewer when there are many workers; the last run removes the worker itself.

KEYS[1]  meta

ARGV[1]  by        JSON members `"actor":…,"source":…` for the history
ARGV[2]  lease     the leader's whole lease; the worker's own lease must have ended. Empty when a worker removes
                   itself
ARGV[3]  worker
ARGV[4]  lease_ms  length of a worker's lease, which tells when the worker renewed it last

reply    {status, version} DONE, STALE (sessions remain: call again), UNCHANGED (its lease has not ended), FENCED
]]
-- include: statuses
-- include: keys
-- include: types
-- include: version
-- include: clock
-- include: changes
-- include: deadline_clock
-- include: leadership
-- include: cut_off
-- include: sessions
-- include: established
-- include: lost_connections

local by, lease, worker, lease_ms = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local INSTANCES_PER_RUN = math.min(1000, instances_per_call())

check_tables()
check_hash('sessions', worker)
check_sessions()
local sessions = key_of('sessions', worker)
local found = redis.call('HSCAN', sessions, '0', 'COUNT', INSTANCES_PER_RUN)[2]
for i = 1, #found, 2 do
  check_hash('instance', found[i])
end
if lease ~= '' and not is_leader(lease) then
  return { FENCED, current_version() }
end
local deadline_now, server_now = deadline_clock(by)
local lease_end = redis.call('ZSCORE', table_key('workers'), worker)
if lease ~= '' and lease_end and tonumber(lease_end) >= deadline_now then
  return { UNCHANGED, current_version() }
end

-- First, so that a worker that is alive after all notices that it was removed (renew_worker_lease).
redis.call('HDEL', table_key('workers:about'), worker)
local alive_at = (lease ~= '' and lease_end) and tonumber(lease_end) - lease_ms or deadline_now
for i = 1, #found, 2 do
  local instance_name, incarnation = found[i], string.match(found[i + 1], '^%d+ (.*)$')
  local known = redis.call('HMGET', key_of('instance', instance_name), 'inc', 'timeout')
  if known[1] == incarnation then
    redis.call('ZADD', table_key('deadlines'), 'GT', ms_text(alive_at + tonumber(known[2])), instance_name)
  end
  redis.call('HDEL', sessions, instance_name)
  if lease ~= '' and known[1] == incarnation and not has_session(instance_name, incarnation) then
    local lost = incarnation .. ' ' .. ms_text(server_now) .. ' ' .. worker
    redis.call('HSET', table_key('lost'), instance_name, lost)
  end
end
if redis.call('EXISTS', sessions) == 1 then
  return { STALE, current_version() }
end
redis.call('ZREM', table_key('workers'), worker)
if lease ~= '' and lease_end then
  record_vanished_worker(server_now - (deadline_now - alive_at), alive_at)
end
return { DONE, current_version() }
