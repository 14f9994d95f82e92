--[[
Restores key-values that the store has lost: only those that it does not have, and only until one worker has restored
all.

KEYS[1]   meta

ARGV[1]   by         JSON members `"actor":…,"source":…` for the history
ARGV[2]   namespace
ARGV[3…]  key, value, sha256

reply     {status, version, number written} DONE, UNCHANGED
]]
-- include: statuses
-- include: keys
-- include: version
-- include: json
-- include: clock
-- include: changes
-- include: key_values
-- include: restoring

local by, namespace = ARGV[1], ARGV[2]
local FIRST_ENTRY, ENTRY_LENGTH = 3, 3

if is_restored() then
  return { UNCHANGED, current_version(), 0 }
end
local written = 0
for at = FIRST_ENTRY, #ARGV, ENTRY_LENGTH do
  if redis.call('HEXISTS', key_of('kv', namespace), ARGV[at]) == 0 then
    put_key_value(namespace, ARGV[at], ARGV[at + 1], ARGV[at + 2], by)
    written = written + 1
  end
end
return { written > 0 and DONE or UNCHANGED, current_version(), written }
