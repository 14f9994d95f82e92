--[[
Handles a registration that repeats an earlier one, as nearly all registrations do. If the instance has this
registration digest and its group has not changed since, the registration is a heartbeat. Otherwise the worker has to
register in full.

KEYS[1]   meta

ARGV[1]   by       JSON members `"actor":…,"source":…` for the history
ARGV[2]   cluster
ARGV[3]   broker   name of the group
ARGV[4]   id
ARGV[5]   address
ARGV[6]   digest   registration digest
ARGV[7]   worker   worker whose connection it came over, which opens a session; empty for none
ARGV[8]   stamp    stamp of that session

reply     {status, version, incarnation, master address, master HA address, gap}
          UNCHANGED, STALE (register in full). gap: ms since the heartbeat before, -1 if there was none
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
-- include: master_of

local by, cluster, broker, id, address = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local digest, worker, stamp = ARGV[6], ARGV[7], ARGV[8]

local instance_name = join_instance_name(cluster, address)
local known = redis.call('HMGET', key_of('instance', instance_name), 'inc', 'digests', 'rev', 'timeout')
local revision = redis.call('HGET', key_of('broker', broker), 'rev')
local is_same = known[1] and revision and known[3] == revision and string.find(known[2], digest, 1, true)
if not is_same then
  return { STALE, current_version(), '', '', '', -1 }
end

-- All keys are read before the first one is written, so that one of a wrong type stops the script before.
local master, master_ha = master_of(cluster, broker, id)
local heartbeat = read_heartbeat(instance_name)
local deadline_now, server_now, version = deadline_clock(by)
if worker ~= '' then
  open_session(worker, stamp, instance_name, known[1], deadline_now)
  record_source(by, instance_name)
end
local gap = write_heartbeat(heartbeat, instance_name, known[4], deadline_now, server_now)
return { UNCHANGED, version, known[1], master, master_ha, gap }
