--[[
Stores a key-value, and returns what it replaced. Each key-value namespace is one hash. The set `kv` lists all of them,
because a namespace remains after its last key was deleted. `meta` has the number of all keys (`kv_count`) and their
bytes (`kv_bytes`). A script of an older release counts nothing; that shows in the number of keys, and then everything
is counted again. Uses: keys, clock, json, changes.
]]
local function count_key_value(number, bytes)
  if redis.call('HEXISTS', META, 'kv_count') == 1 then
    redis.call('HINCRBY', META, 'kv_count', number)
    redis.call('HINCRBY', META, 'kv_bytes', bytes)
  end
end

local function bytes_of_all(namespaces)
  local bytes = 0
  for _, namespace in ipairs(namespaces) do
    for _, text in ipairs(redis.call('HGETALL', key_of('kv', namespace))) do
      bytes = bytes + #text
    end
  end
  return bytes
end

-- Returns the setting whose limit the value would exceed, or nil. A limit of 0 is none. Namespaces count as keys do.
local function key_value_limit_exceeded(namespace, key, value, max_count, max_bytes)
  local namespaces, count = redis.call('SMEMBERS', table_key('kv')), 0
  for _, name in ipairs(namespaces) do
    count = count + redis.call('HLEN', key_of('kv', name))
  end
  local counted = redis.call('HMGET', META, 'kv_count', 'kv_bytes')
  if tonumber(counted[1] or '-1') ~= count then
    counted[2] = bytes_of_all(namespaces)
    redis.call('HSET', META, 'kv_count', count, 'kv_bytes', ms_text(counted[2]))
  end
  local known = redis.call('HGET', key_of('kv', namespace), key)
  local names = #namespaces + 1 - redis.call('SISMEMBER', table_key('kv'), namespace)
  if max_count > 0 and ((not known and count >= max_count) or names > math.max(max_count, #namespaces)) then
    return 'max_key_values'
  end
  local growth = #value - (known and #known or -#key)
  if max_bytes > 0 and growth > 0 and tonumber(counted[2]) + growth > max_bytes then
    return 'max_key_values_bytes'
  end
end

-- What the history shows of a value that was replaced or deleted: its SHA-1, since Redis has no other hash for scripts.
local function value_before(namespace, key)
  local value = redis.call('HGET', key_of('kv', namespace), key)
  return ',"before_sha1":' .. (value and '"' .. redis.sha1hex(value) .. '"' or 'null')
end

local function put_key_value(namespace, key, value, sha256, by)
  local before, known = value_before(namespace, key), redis.call('HGET', key_of('kv', namespace), key)
  count_key_value(known and 0 or 1, #value - (known and #known or -#key))
  redis.call('SADD', table_key('kv'), namespace)
  redis.call('HSET', key_of('kv', namespace), key, value)
  return append_change('kv-put', by, '"namespace":' .. quote(namespace) .. ',"key":' .. quote(key)
    .. ',"sha256":"' .. sha256 .. '"' .. before)
end
