--[[
Takes the write permission of all of a broker's topics away, or gives them read and write exactly (it drops the inherit bit,
as Apache's does).

KEYS[1]   meta

ARGV[1]   by        JSON members `"actor":…,"source":…` for the history
ARGV[2]   broker    name of the group
ARGV[3]   writable  1 or 0

reply     {status, version, topics of that broker} DONE, UNCHANGED, UNKNOWN (no topic has such a broker)
]]
-- include: statuses
-- include: keys
-- include: version
-- include: json
-- include: clock
-- include: changes
-- include: groups
-- include: slices
-- include: write_permission

local by, broker, writable = ARGV[1], ARGV[2], ARGV[3] == '1'
local PERM_READ_WRITE = 6

local function read_and_write()
  return PERM_READ_WRITE
end

local total, touched = change_permissions(broker, writable and read_and_write or without_write)
if total == 0 then
  return { UNKNOWN, current_version(), 0 }
end
if touched == 0 then
  return { UNCHANGED, current_version(), total }
end
local version = append_change('write-permission', by,
  '"cluster":' .. quote(redis.call('HGET', key_of('broker', broker), 'cluster')) .. ',"broker":' .. quote(broker)
  .. ',"rule":"' .. (writable and 'set' or 'clear-write') .. '","perm":' .. (writable and PERM_READ_WRITE or PERM_WRITE)
  .. ',"touched":' .. touched .. ',"cause":"operator"')
set_revision(broker, version)
return { DONE, version, total }
