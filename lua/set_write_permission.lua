--[[
Takes the write permission from all topics of a group, or gives them exactly read and write (which drops the inherit
bit, as Apache's name server does).

KEYS[1]   meta

ARGV[1]   by        JSON members `"actor":…,"source":…` for the history
ARGV[2]   broker    name of the group
ARGV[3]   writable  1 or 0
ARGV[4]   cause     operator or request
ARGV[5]   staged    staged table with the new permissions, see write_permission; empty at first

reply     {status, version, number of topics} DONE, UNCHANGED, UNKNOWN (the group has no topics), STALE (stage them
          first)
]]
-- include: statuses
-- include: keys
-- include: types
-- include: version
-- include: json
-- include: clock
-- include: changes
-- include: integers
-- include: groups
-- include: slices
-- include: staging
-- include: write_permission

local by, broker, writable, cause, staged = ARGV[1], ARGV[2], ARGV[3] == '1', ARGV[4], ARGV[5]

check_tables()
check_hash('broker', broker)
check_hash('queues', broker)
local group = redis.call('HMGET', key_of('broker', broker), 'cluster', 'rev')
local cluster, revision = group[1], group[2] or '0'
if must_stage_permissions(broker, staged, revision) then
  return { STALE, current_version(), 0 }
end
local total, touched, before = change_permissions(broker, writable and read_and_write or without_write, staged, revision)
if total == 0 then
  return { UNKNOWN, current_version(), 0 }
end
if touched == 0 then
  return { UNCHANGED, current_version(), total }
end
local version = append_change('write-permission', by, '"cluster":' .. quote(cluster) .. ',"broker":' .. quote(broker)
  .. ',"rule":"' .. (writable and 'set' or 'clear-write') .. '","perm":' .. (writable and PERM_READ_WRITE or PERM_WRITE)
  .. ',"touched":' .. touched .. before .. ',"cause":"' .. cause .. '"')
set_revision(broker, version)
return { DONE, version, total }
