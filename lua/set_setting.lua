--[[
Changes a run-time setting for all workers.

KEYS[1]  meta

ARGV[1]  by      JSON members `"actor":…,"source":…` for the history
ARGV[2]  key
ARGV[3]  value   as canonical text
ARGV[4]  shown   the value as the history may show it: secrets are masked

reply    {status, version} DONE, UNCHANGED
]]
-- include: statuses
-- include: keys
-- include: types
-- include: version
-- include: json
-- include: clock
-- include: changes
-- include: settings

local by, key, value, shown = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

check_tables()
if redis.call('HGET', table_key('settings'), key) == value then
  return { UNCHANGED, current_version() }
end
return { DONE, put_setting(key, value, shown, by) }
