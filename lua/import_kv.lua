--[[
Takes over the key-values of Apache's file, once in the life of a store, and never over what the store holds or has held.

KEYS[1]   meta

ARGV[1]   by  JSON members `"actor":…,"source":…` for the history
ARGV[2…]  namespace, key, value, sha256

reply     {status, version} DONE, UNCHANGED (imported before, or the store has held key-values)
]]
-- include: statuses
-- include: keys
-- include: version
-- include: json
-- include: clock
-- include: changes
-- include: key_values

local by = ARGV[1]
local FIRST_ENTRY, ENTRY_LENGTH = 2, 4

if redis.call('EXISTS', table_key('kv')) == 1 or redis.call('HSETNX', META, 'kv_imported', '1') == 0 then
  return { UNCHANGED, current_version() }
end
for at = FIRST_ENTRY, #ARGV, ENTRY_LENGTH do
  put_key_value(ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], by)
end
return { DONE, current_version() }
