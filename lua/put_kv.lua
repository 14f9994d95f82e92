--[[
Stores one key-value.

KEYS[1]  meta

ARGV[1]  by         JSON members `"actor":…,"source":…` for the history
ARGV[2]  namespace  key-value namespace
ARGV[3]  key
ARGV[4]  value
ARGV[5]  sha256     hash of the value, for the history: values may be secrets

reply    {status, version} DONE, UNCHANGED
]]
-- include: statuses
-- include: keys
-- include: version
-- include: json
-- include: clock
-- include: changes
-- include: key_values

local by, namespace, key, value, sha256 = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

if redis.call('HGET', key_of('kv', namespace), key) == value then
  return { UNCHANGED, current_version() }
end
return { DONE, put_key_value(namespace, key, value, sha256, by) }
