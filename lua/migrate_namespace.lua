--[[
Renames the fields that had other names in an older layout, in one step. Running it again changes nothing.

KEYS[1]  meta

ARGV[1]  schema  the caller's layout, to which the namespace is brought

reply    {status, version} DONE, UNCHANGED (the namespace has that layout already, or none yet)
]]
-- include: statuses
-- include: keys
-- include: types
-- include: version

local schema = tonumber(ARGV[1])

check_tables()
-- When both names exist, the new one has been written by a newer worker: its value stays.
local function rename_field(key, former, current)
  local value = redis.call('HGET', key, former)
  if value then
    redis.call('HSETNX', key, current, value)
    redis.call('HDEL', key, former)
  end
end

local found = tonumber(redis.call('HGET', META, 'schema') or schema)
if found >= schema then
  return { UNCHANGED, current_version() }
end
-- Layout 1 to 2.
rename_field(META, 'deaf_ms', 'paused_ms')
rename_field(META, 'baseline_wanted', 'baseline_requested')
rename_field(table_key('expiry'), 'stood_at', 'paused_at')
rename_field(table_key('expiry'), 'stood_from_ms', 'paused_from_ms')
rename_field(table_key('settings'), 'network_ill_percent', 'mass_disconnect_percent')
rename_field(table_key('settings'), 'network_ill_minimum', 'mass_disconnect_minimum')
redis.call('HSET', META, 'schema', schema)
return { DONE, current_version() }
