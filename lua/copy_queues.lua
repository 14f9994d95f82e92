--[[
Copies one page of a group's queue table into a staged table, and changes permissions on the way if asked to. Nothing
becomes visible.

KEYS[1]  meta

ARGV[1]  staged   name of the staged table, random
ARGV[2]  entries  number of entries that the page before left in it, 0 for the first page
ARGV[3]  broker   name of the group
ARGV[4]  cursor   where the page before ended, 0 for the first page
ARGV[5]  rule     empty, or the write permission is to be: set (read and write, nothing else) or clear-write

reply    {status, version, entries, cursor, revision, number changed, former permissions} DONE, UNKNOWN (the staged
         table has expired: start over). cursor: 0 after the last page. revision: of the group. number changed: entries
         that the rule changed. former permissions: the different ones that these entries had
]]
-- include: statuses
-- include: keys
-- include: types
-- include: version
-- include: slices
-- include: staging
-- include: write_permission

local staged, entries, broker, cursor, rule = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4], ARGV[5]
local ENTRIES_PER_PAGE = 4000

check_hash('staged', staged)
check_hash('staged-changes', staged)
check_hash('queues', broker)
check_hash('broker', broker)
if not has_staged(staged, entries, 0) then
  return { UNKNOWN, current_version(), 0, '0', '', 0, {} }
end
local page = redis.call('HSCAN', key_of('queues', broker), cursor, 'COUNT', ENTRIES_PER_PAGE)
local changed_count, unchanged, former = 0, page[2], {}
if rule ~= '' then
  local changed
  changed, unchanged, former = work_out_permissions(page[2], rule == 'set' and read_and_write or without_write)
  -- A page may repeat an entry of an earlier one. HSET counts only those that are new to the staged table.
  changed_count = call_in_slices('HSET', key_of('staged', staged), changed, 1, #changed)
end
call_in_slices('HSET', key_of('staged', staged), unchanged, 1, #unchanged)
local revision = redis.call('HGET', key_of('broker', broker), 'rev') or '0'
local entry_count = keep_staged(staged)
return { DONE, current_version(), entry_count, page[1], revision, changed_count, former }
