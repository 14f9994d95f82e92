--[[
Checks the types of keys before a script writes. A script cannot be rolled back, and a key of another type, which
another program must have made, would stop it halfway. Scripts that handle a heartbeat do not use this:
they read each key before they write the first one, which checks its type, too. Uses: keys.
]]
local TABLES = {
  meta = 'hash', clusters = 'set', mapped = 'set', filters = 'hash', heartbeats = 'zset', deadlines = 'zset',
  lost = 'hash', ended = 'zset', workers = 'zset', ['workers:about'] = 'hash', kv = 'set', settings = 'hash',
  identities = 'hash', changes = 'stream', ['changes:marks'] = 'zset', pulse = 'stream', identity = 'string',
  leader = 'string', ['leader:token'] = 'string', ['new-instances'] = 'zset', removals = 'zset', held = 'zset',
  expiry = 'hash',
}

local function has_type(key, wanted)
  local found = redis.call('TYPE', key).ok
  return found == wanted or found == 'none', found
end

local function check_type(key, wanted)
  local is_right, found = has_type(key, wanted)
  if not is_right then
    error('WRONGTYPE ' .. key .. ' is a ' .. found .. ', not a ' .. wanted)
  end
end

local function check_hash(kind, name)
  check_type(key_of(kind, name), 'hash')
end

local function check_clusters()
  for _, cluster in ipairs(redis.call('SMEMBERS', table_key('clusters'))) do
    check_type(key_of('cluster', cluster), 'set')
  end
end

-- Numbers in `meta` that every change calculates with.
local function check_meta()
  for i, value in ipairs(redis.call('HMGET', META, 'version', 'ms', 'bytes', 'alive_ms', 'paused_ms', 'began_at')) do
    if value and not (string.match(value, '^%-?%d+$') and #value <= 16) then
      error('WRONGTYPE ' .. META .. ' has the value ' .. value .. ', which is no number, as its value ' .. i)
    end
  end
end

local function check_tables()
  for name, wanted in pairs(TABLES) do
    check_type(table_key(name), wanted)
  end
  check_clusters()
  check_meta()
end

local function check_sessions()
  for _, worker in ipairs(redis.call('ZRANGE', table_key('workers'), 0, -1)) do
    check_hash('sessions', worker)
  end
end

-- A group, its lists, and the instances that hold its seats.
local function check_group(cluster, broker)
  check_type(key_of('cluster', cluster), 'set')
  for _, kind in ipairs({ 'broker', 'queues', 'mapping' }) do
    check_hash(kind, broker)
  end
  local group = redis.call('HGETALL', key_of('broker', broker))
  local own = cluster
  for i = 1, #group, 2 do
    own = group[i] == 'cluster' and group[i + 1] or own
  end
  for i = 1, #group, 2 do
    if string.sub(group[i], 1, 5) == 'addr:' then
      check_hash('instance', join_instance_name(cluster, group[i + 1]))
      check_hash('instance', join_instance_name(own, group[i + 1]))
    end
  end
end

-- An instance and its group.
local function check_instance(instance_name)
  check_hash('instance', instance_name)
  local broker = redis.call('HGET', key_of('instance', instance_name), 'broker')
  if broker then
    check_group(string.match(instance_name, '^(.*)/[^/]*$'), broker)
  end
end
