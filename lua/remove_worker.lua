--[[
A worker that is gone: its sessions are forgotten with it, and the brokers connected to it get one full timeout from when it
could hear them last. In parts; the worker itself goes with the last one.

KEYS[1]  meta

ARGV[1]  by      JSON members `"actor":…,"source":…` for the history
ARGV[2]  lease   the leader's whole lease, which also asks that the worker's own has ended; empty when the worker itself leaves
ARGV[3]  worker
ARGV[4]  lease_ms  of the worker: its last sign of life came so long before the end of its lease

reply    {status, version} DONE, STALE (there is more: call again), UNCHANGED (it lives), FENCED
]]
-- include: statuses
-- include: keys
-- include: version
-- include: clock
-- include: changes
-- include: deadline_clock
-- include: leadership
-- include: cut_off

local by, lease, worker, lease_ms = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local MEMBERS_PER_CALL = 1000

if lease ~= '' and not is_leader(lease) then
  return { FENCED, current_version() }
end
local deadline_now, server_now = deadline_clock(by)
local lease_end = redis.call('ZSCORE', table_key('workers'), worker)
if lease ~= '' and lease_end and tonumber(lease_end) >= deadline_now then
  return { UNCHANGED, current_version() }
end

-- First of all: one that lives after all learns by it that it was forgotten.
redis.call('HDEL', table_key('workers:about'), worker)
local heard_ms = (lease ~= '' and lease_end) and tonumber(lease_end) - lease_ms or deadline_now
local sessions = key_of('sessions', worker)
local found = redis.call('HSCAN', sessions, '0', 'COUNT', MEMBERS_PER_CALL)[2]
for i = 1, #found, 2 do
  local instance_name, incarnation = found[i], string.match(found[i + 1], '^%d+ (.*)$')
  local known = redis.call('HMGET', key_of('instance', instance_name), 'inc', 'timeout')
  if known[1] == incarnation then
    redis.call('ZADD', table_key('deadlines'), 'GT', ms_text(heard_ms + tonumber(known[2])), instance_name)
  end
  redis.call('HDEL', sessions, instance_name)
end
if redis.call('EXISTS', sessions) == 1 then
  return { STALE, current_version() }
end
redis.call('ZREM', table_key('workers'), worker)
if lease ~= '' and lease_end then
  record_vanished_worker(server_now - (deadline_now - heard_ms), heard_ms)
end
return { DONE, current_version() }
