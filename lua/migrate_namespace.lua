--[[
Renames the fields that had other names in an older layout, in one step. Running it again changes nothing.

KEYS[1]  meta

ARGV[1]  schema  the caller's layout, to which the namespace is brought

reply    {status, version, workers} DONE, UNCHANGED (the namespace has that layout already, or none yet), REFUSED (these
         workers of an older layout are running, and would not find the renamed fields)
]]
-- include: statuses
-- include: keys
-- include: types
-- include: version
-- include: clock

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
local paused = redis.call('HGET', META, 'paused_ms') or redis.call('HGET', META, 'deaf_ms') or '0'
local older = {}
for _, worker in ipairs(redis.call('ZRANGEBYSCORE', table_key('workers'), '(' .. ms_text(server_ms() - tonumber(paused)), '+inf')) do
  -- Workers that know this layout say so (`layout`); they have waited for this migration.
  local about = redis.call('HGET', table_key('workers:about'), worker) or ''
  if not string.find(about, '"layout"', 1, true) then
    older[#older + 1] = worker
  end
end
if #older > 0 then
  return { REFUSED, current_version(), older }
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
