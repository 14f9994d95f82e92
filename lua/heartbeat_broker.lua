--[[
Handles a heartbeat: it moves the deadline, and creates nothing. A broker that is not in the route table gets UNKNOWN.

KEYS[1]   meta

ARGV[1]   by       JSON members `"actor":…,"source":…` for the history
ARGV[2]   cluster
ARGV[3]   broker   name of the group, used when no address is given
ARGV[4]   id       its seat, used when no address is given
ARGV[5]   address  empty: the address in that seat
ARGV[6]   foreign  1: it came over a connection that did not register the instance, and whose sender is unknown. It is
                   REFUSED while the instance has a session that was opened from another host

reply     {status, version, data version, gap} UNCHANGED, UNKNOWN, REFUSED. gap: ms since the heartbeat before, -1 if
          there was none
]]
-- include: statuses
-- include: keys
-- include: types
-- include: version
-- include: clock
-- include: changes
-- include: deadline_clock
-- include: sessions
-- include: established
-- include: heartbeat

local by, cluster, broker, id, address, foreign = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6] == '1'

-- A broker that has just reconnected sends heartbeats before it registers again, while its former connection may still
-- seem open, on this worker or another. So heartbeats from its own host are accepted; else a live broker would expire.
local function is_carried_elsewhere(instance_name, incarnation, source)
  local sender = source_of(by)
  return source and sender and host_of(source) ~= host_of(sender) and has_session(instance_name, incarnation)
end

if address == '' then
  address = redis.call('HGET', key_of('broker', broker), 'addr:' .. id) or ''
end
local instance_name = join_instance_name(cluster, address)
local known = redis.call('HMGET', key_of('instance', instance_name), 'inc', 'timeout', 'dv', 'source')
if not known[1] then
  return { UNKNOWN, current_version(), '', -1 }
end
if foreign and is_carried_elsewhere(instance_name, known[1], known[4]) then
  return { REFUSED, current_version(), '', -1 }
end
local deadline_now, server_now, version = deadline_clock(by)
local gap = record_heartbeat(instance_name, known[2], deadline_now, server_now)
return { UNCHANGED, version, known[3], gap }
