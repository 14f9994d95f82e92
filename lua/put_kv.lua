--[[
Stores one key-value.

KEYS[1]  meta

ARGV[1]  by         JSON members `"actor":…,"source":…` for the history
ARGV[2]  namespace  key-value namespace
ARGV[3]  key
ARGV[4]  value
ARGV[5]  sha256     hash of the value, for the history: values may be secrets
ARGV[6]  max_count  number of keys that all namespaces may have; 0 for any
ARGV[7]  max_bytes  bytes that all keys and values may have; 0 for any

reply    {status, version, setting} DONE, UNCHANGED, LIMITED. setting: of the limit, with LIMITED only
]]
-- include: statuses
-- include: keys
-- include: types
-- include: version
-- include: json
-- include: clock
-- include: changes
-- include: key_values

local by, namespace, key, value, sha256 = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local max_count, max_bytes = tonumber(ARGV[6]), tonumber(ARGV[7])

check_tables()
check_hash('kv', namespace)
if redis.call('HGET', key_of('kv', namespace), key) == value then
  return { UNCHANGED, current_version() }
end
local exceeded = key_value_limit_exceeded(namespace, key, value, max_count, max_bytes)
if exceeded then
  return { LIMITED, current_version(), exceeded }
end
return { DONE, put_key_value(namespace, key, value, sha256, by) }
