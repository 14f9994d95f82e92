--[[
Handles a heartbeat: it moves the deadline, and creates nothing. A broker that is not in the route table gets UNKNOWN.

KEYS[1]   meta

ARGV[1]   by       JSON members `"actor":…,"source":…` for the history
ARGV[2]   cluster
ARGV[3]   broker   name of the group, used when no address is given
ARGV[4]   id       its seat, used when no address is given
ARGV[5]   address  empty: the address in that seat

reply     {status, version, data version, gap} UNCHANGED, UNKNOWN. gap: ms since the heartbeat before, -1 if there was
          none
]]
-- include: statuses
-- include: keys
-- include: version
-- include: clock
-- include: changes
-- include: deadline_clock
-- include: established
-- include: heartbeat

local by, cluster, broker, id, address = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

if address == '' then
  address = redis.call('HGET', key_of('broker', broker), 'addr:' .. id) or ''
end
local instance_name = join_instance_name(cluster, address)
local known = redis.call('HMGET', key_of('instance', instance_name), 'inc', 'timeout', 'dv')
if not known[1] then
  return { UNKNOWN, current_version(), '', -1 }
end
local deadline_now, server_now, version = deadline_clock(by)
local gap = record_heartbeat(instance_name, known[2], deadline_now, server_now)
return { UNCHANGED, version, known[3], gap }
