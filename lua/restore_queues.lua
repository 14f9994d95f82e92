--[[
Writes back queue entries that came from register-topic, for a broker that is back after a loss: only where there is none.

KEYS[1]   meta

ARGV[1]   by      JSON members `"actor":…,"source":…` for the history
ARGV[2]   broker  name of the group
ARGV[3…]  topic, packed queue data, queue item as JSON

reply     {status, version, number written} DONE, UNCHANGED, UNKNOWN (the broker is not back)
]]
-- include: statuses
-- include: keys
-- include: version
-- include: json
-- include: clock
-- include: changes
-- include: groups
-- include: topic_queues

local by, broker = ARGV[1], ARGV[2]
local FIRST_ENTRY, ENTRY_LENGTH = 3, 3

if redis.call('EXISTS', key_of('broker', broker)) == 0 then
  return { UNKNOWN, current_version(), 0 }
end
local written = 0
for at = FIRST_ENTRY, #ARGV, ENTRY_LENGTH do
  if redis.call('HSETNX', key_of('queues', broker), ARGV[at], ARGV[at + 1]) == 1 then
    append_queue_change(broker, ARGV[at + 2], 'register-topic', by)
    written = written + 1
  end
end
return { written > 0 and DONE or UNCHANGED, current_version(), written }
