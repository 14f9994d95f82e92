--[[
Stores a key-value. Each key-value namespace is one hash. The set `kv` lists all of them, because a namespace remains
after its last key was deleted. Uses: keys, json, changes.
]]
local function put_key_value(namespace, key, value, sha256, by)
  redis.call('SADD', table_key('kv'), namespace)
  redis.call('HSET', key_of('kv', namespace), key, value)
  return append_change('kv-put', by,
    '"namespace":' .. quote(namespace) .. ',"key":' .. quote(key) .. ',"sha256":"' .. sha256 .. '"')
end
