--[[
Takes over a part of the key-values of Apache's file, once in the life of a store, and never over what the store holds. The
mark in `meta` says how far the file was taken: who goes on after a stop brings nothing back that was deleted since.

KEYS[1]   meta

ARGV[1]   by    JSON members `"actor":…,"source":…` for the history
ARGV[2]   file  digest of the file's key-values, since a place in another file says nothing
ARGV[3]   from  number of the file's entries before this part
ARGV[4]   last  1: the file ends with this part
ARGV[5…]  namespace, key, value, sha256

reply     {status, version, entry to go on from, number written} DONE, STALE (the part does not begin where the mark is),
          UNCHANGED (imported before, or the store has held key-values, or a later start began another file)
]]
-- include: statuses
-- include: keys
-- include: version
-- include: json
-- include: clock
-- include: changes
-- include: key_values

local by, file, from, is_last = ARGV[1], ARGV[2], ARGV[3], ARGV[4] == '1'
local FIRST_ENTRY, ENTRY_LENGTH = 5, 4

local mark = redis.call('HGET', META, 'kv_imported')
if mark == '1' or (not mark and redis.call('EXISTS', table_key('kv')) == 1) then
  return { UNCHANGED, current_version(), 0, 0 }
end
local begun, place = string.match(mark or '', '^(%x+) (%d+)$')
if not mark or (begun ~= file and from == '0') then
  begun, place = file, '0'
end
if begun ~= file then
  return { UNCHANGED, current_version(), 0, 0 }
end
if place ~= from then
  return { STALE, current_version(), tonumber(place), 0 }
end

local written = 0
for at = FIRST_ENTRY, #ARGV, ENTRY_LENGTH do
  if redis.call('HEXISTS', key_of('kv', ARGV[at]), ARGV[at + 1]) == 0 then
    put_key_value(ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], by)
    written = written + 1
  end
end
local next_place = tonumber(from) + (#ARGV - FIRST_ENTRY + 1) / ENTRY_LENGTH
redis.call('HSET', META, 'kv_imported', is_last and '1' or file .. ' ' .. next_place)
return { DONE, current_version(), next_place, written }
