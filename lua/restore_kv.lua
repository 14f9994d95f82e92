--[[
Restores key-values that the store has lost: only those that it does not have, and only while that is safe (restoring).

KEYS[1]   meta

ARGV[1]   by         JSON members `"actor":…,"source":…` for the history
ARGV[2]   position   where the replica stands, or empty after a loss of data
ARGV[3]   namespace
ARGV[4…]  key, value, sha256

reply     {status, version, number written} DONE, UNCHANGED, STALE (the store has another position)
]]
-- include: statuses
-- include: keys
-- include: types
-- include: version
-- include: json
-- include: clock
-- include: changes
-- include: key_values
-- include: restoring

local by, position, namespace = ARGV[1], ARGV[2], ARGV[3]
local FIRST_ENTRY, ENTRY_LENGTH = 4, 3

check_tables()
check_hash('kv', namespace)
if not may_restore(position) then
  return { position == '' and UNCHANGED or STALE, current_version(), 0 }
end
local written, is_listed = 0, redis.call('SADD', table_key('kv'), namespace) == 0
for at = FIRST_ENTRY, #ARGV, ENTRY_LENGTH do
  local stored = redis.call('HGET', key_of('kv', namespace), ARGV[at])
  if not stored or not is_listed then  -- the first entry also says that the namespace is listed again
    put_key_value(namespace, ARGV[at], stored or ARGV[at + 1], ARGV[at + 2], by)
    written, is_listed = written + 1, true
  end
end
return { written > 0 and DONE or UNCHANGED, current_version(), written }
