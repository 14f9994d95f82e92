--[[
Opens sessions again for connections that a worker still has. Registrations and touches open them in the first place;
this is for a worker that was removed although it lives, and for a store that lost its last writes.

KEYS[1]   meta

ARGV[1]   by      JSON members `"actor":…,"source":…` for the history
ARGV[2]   worker
ARGV[3…]  cluster, address, incarnation, stamp

reply     {status, version, statuses} UNCHANGED. statuses: for each DONE, or STALE (another incarnation, or none)
]]
-- include: statuses
-- include: keys
-- include: types
-- include: version
-- include: clock
-- include: changes
-- include: deadline_clock
-- include: sessions

local by, worker = ARGV[1], ARGV[2]
local FIRST_SESSION, SESSION_LENGTH = 3, 4

check_tables()
check_hash('sessions', worker)
for at = FIRST_SESSION, #ARGV, SESSION_LENGTH do
  check_hash('instance', join_instance_name(ARGV[at], ARGV[at + 1]))
end
local deadline_now = deadline_clock(by)
local statuses = {}
for at = FIRST_SESSION, #ARGV, SESSION_LENGTH do
  local instance_name, incarnation, stamp = join_instance_name(ARGV[at], ARGV[at + 1]), ARGV[at + 2], ARGV[at + 3]
  local is_current = redis.call('HGET', key_of('instance', instance_name), 'inc') == incarnation
  if is_current then
    open_session(worker, stamp, instance_name, incarnation, deadline_now)
  end
  statuses[#statuses + 1] = is_current and DONE or STALE
end
return { UNCHANGED, current_version(), statuses }
