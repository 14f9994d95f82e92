--[[
Deletes one key-value. Its namespace remains, possibly empty.

KEYS[1]  meta

ARGV[1]  by         JSON members `"actor":…,"source":…` for the history
ARGV[2]  namespace
ARGV[3]  key
ARGV[4]  carried    1: workers still show what the store has lost, so append the deletion even if the key is not here

reply    {status, version} DONE, UNKNOWN
]]
-- include: statuses
-- include: keys
-- include: types
-- include: version
-- include: json
-- include: clock
-- include: changes
-- include: key_values

local by, namespace, key, carried = ARGV[1], ARGV[2], ARGV[3], ARGV[4] == '1'

check_tables()
check_hash('kv', namespace)
local before = value_before(namespace, key)
local known = redis.call('HGET', key_of('kv', namespace), key)
if not known and not carried then
  return { UNKNOWN, current_version() }
end
if known then
  redis.call('HDEL', key_of('kv', namespace), key)
  count_key_value(-1, -#key - #known)
end
return { DONE, append_change('kv-deleted', by, '"namespace":' .. quote(namespace) .. ',"key":' .. quote(key) .. before) }
