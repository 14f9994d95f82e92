--[[
Restores run-time settings that the store has lost: only those that it does not have, and only while that is safe
(restoring).

KEYS[1]   meta

ARGV[1]   by        JSON members `"actor":…,"source":…` for the history
ARGV[2]   position  where the replica stands, or empty after a loss of data
ARGV[3…]  key, value, value as the history may show it

reply     {status, version, number written} DONE, UNCHANGED, STALE (the store has another position)
]]
-- include: statuses
-- include: keys
-- include: types
-- include: version
-- include: json
-- include: clock
-- include: changes
-- include: settings
-- include: restoring

local by, position = ARGV[1], ARGV[2]
local FIRST_ENTRY, ENTRY_LENGTH = 3, 3

check_tables()
if not may_restore(position) then
  return { position == '' and UNCHANGED or STALE, current_version(), 0 }
end
local written = 0
for at = FIRST_ENTRY, #ARGV, ENTRY_LENGTH do
  if redis.call('HEXISTS', table_key('settings'), ARGV[at]) == 0 then
    put_setting(ARGV[at], ARGV[at + 1], ARGV[at + 2], by)
    written = written + 1
  end
end
return { written > 0 and DONE or UNCHANGED, current_version(), written }
