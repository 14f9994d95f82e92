--[[
Deletes a run-time setting: on all workers, the value of the file or the default is in force again.

KEYS[1]  meta

ARGV[1]  by       JSON members `"actor":…,"source":…` for the history
ARGV[2]  key
ARGV[3]  shown    *** when the value may not be shown in the history; empty otherwise
ARGV[4]  carried  1: workers still show what the store has lost, so append the deletion even if the key is not here

reply    {status, version} DONE, UNKNOWN
]]
-- include: statuses
-- include: keys
-- include: types
-- include: version
-- include: json
-- include: clock
-- include: changes
-- include: settings

local by, key, shown, carried = ARGV[1], ARGV[2], ARGV[3], ARGV[4] == '1'

check_tables()
local known = redis.call('HEXISTS', table_key('settings'), key) == 1
if not known and not carried then
  return { UNKNOWN, current_version() }
end
return { DONE, delete_setting(key, shown, by) }
