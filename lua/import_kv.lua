--[[
Imports a part of the key-values in the file of Apache's name server, once per store, and replaces none that the store
has. A mark in `meta` has the position in the file, so an import that continues after a stop does not bring back what
was deleted meanwhile.

KEYS[1]   meta

ARGV[1]   by    JSON members `"actor":…,"source":…` for the history
ARGV[2]   file  digest of the file's key-values, since a position belongs to one file
ARGV[3]   from  number of entries before this part
ARGV[4]   last  1: the file ends with this part
ARGV[5…]  namespace, key, value, sha256

reply     {status, version, next entry, number written} DONE, STALE (the part does not begin at the mark), UNCHANGED
          (the file was imported before, or the store had key-values, or a later start began with another file)
]]
-- include: statuses
-- include: keys
-- include: types
-- include: version
-- include: json
-- include: clock
-- include: changes
-- include: key_values

local by, file, from, is_last = ARGV[1], ARGV[2], ARGV[3], ARGV[4] == '1'
local FIRST_ENTRY, ENTRY_LENGTH = 5, 4

check_tables()
for at = FIRST_ENTRY, #ARGV, ENTRY_LENGTH do
  check_hash('kv', ARGV[at])
end
local mark = redis.call('HGET', META, 'kv_imported')
if mark == '1' or (not mark and redis.call('EXISTS', table_key('kv')) == 1) then
  return { UNCHANGED, current_version(), 0, 0 }
end
local begun_file, position = string.match(mark or '', '^(%x+) (%d+)$')
if not mark or (begun_file ~= file and from == '0') then
  begun_file, position = file, '0'
end
if begun_file ~= file then
  return { UNCHANGED, current_version(), 0, 0 }
end
if position ~= from then
  return { STALE, current_version(), tonumber(position), 0 }
end

local written = 0
for at = FIRST_ENTRY, #ARGV, ENTRY_LENGTH do
  if redis.call('HEXISTS', key_of('kv', ARGV[at]), ARGV[at + 1]) == 0 then
    put_key_value(ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], by)
    written = written + 1
  end
end
local next_entry = tonumber(from) + (#ARGV - FIRST_ENTRY + 1) / ENTRY_LENGTH
redis.call('HSET', META, 'kv_imported', is_last and '1' or file .. ' ' .. next_entry)
return { DONE, current_version(), next_entry, written }
