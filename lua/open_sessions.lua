--[[
Instances that connections of a worker carry, when neither a registration nor a touch said so: after the worker was forgotten
though it lives, or when the store lost the last writes.

KEYS[1]   meta

ARGV[1]   by      JSON members `"actor":…,"source":…` for the history
ARGV[2]   worker
ARGV[3…]  cluster, address, incarnation, stamp

reply     {status, version, status of each} UNCHANGED; each: DONE, STALE (another stay, or none)
]]
-- include: statuses
-- include: keys
-- include: version
-- include: clock
-- include: changes
-- include: deadline_clock
-- include: sessions

local by, worker = ARGV[1], ARGV[2]
local FIRST_SESSION, SESSION_LENGTH = 3, 4

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
