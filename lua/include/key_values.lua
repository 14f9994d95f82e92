--[[
Stores a key-value, and tells what it replaced. Each key-value namespace is one hash. The set `kv` lists all of them,
because a namespace remains after its last key was deleted. Uses: keys, json, changes.
]]
-- What the history shows of a value that was replaced or deleted: its SHA-1, since Redis has no other hash for scripts.
local function value_before(namespace, key)
  local value = redis.call('HGET', key_of('kv', namespace), key)
  return ',"before_sha1":' .. (value and '"' .. redis.sha1hex(value) .. '"' or 'null')
end

local function put_key_value(namespace, key, value, sha256, by)
  local before = value_before(namespace, key)
  redis.call('SADD', table_key('kv'), namespace)
  redis.call('HSET', key_of('kv', namespace), key, value)
  return append_change('kv-put', by, '"namespace":' .. quote(namespace) .. ',"key":' .. quote(key)
    .. ',"sha256":"' .. sha256 .. '"' .. before)
end
