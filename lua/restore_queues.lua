--[[
Restores topics by request of a group that has registered again after a loss of data: only those that the store does
not have.

KEYS[1]   meta

ARGV[1]   by        JSON members `"actor":…,"source":…` for the history
ARGV[2]   broker    name of the group
ARGV[3]   revision  of the group as the worker has it: it may not have seen yet that a topic was deleted since
ARGV[4…]  topic, packed queue data, queue item as JSON

reply     {status, version, number written} DONE, UNCHANGED, STALE (the group has not registered again, or has
          changed)
]]
-- include: statuses
-- include: keys
-- include: types
-- include: version
-- include: json
-- include: clock
-- include: changes
-- include: integers
-- include: groups
-- include: topic_queues

local by, broker, revision = ARGV[1], ARGV[2], ARGV[3]
local FIRST_ENTRY, ENTRY_LENGTH = 4, 3

check_tables()
check_hash('broker', broker)
check_hash('queues', broker)
if redis.call('HGET', key_of('broker', broker), 'rev') ~= revision then
  return { STALE, current_version(), 0 }
end
local written = 0
for at = FIRST_ENTRY, #ARGV, ENTRY_LENGTH do
  if redis.call('HSETNX', key_of('queues', broker), ARGV[at], ARGV[at + 1]) == 1 then
    append_queue_change(broker, ARGV[at], nil, ARGV[at + 2], 'register-topic', by)
    written = written + 1
  end
end
return { written > 0 and DONE or UNCHANGED, current_version(), written }
