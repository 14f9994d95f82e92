--[[
Restores identities that the store has lost: only those that it does not have, and only while that is safe (restoring).

KEYS[1]   meta

ARGV[1]   by        JSON members `"actor":…,"source":…` for the history
ARGV[2]   position  where the replica stands, or empty after a loss of data
ARGV[3…]  name, packed identity

reply     {status, version, number written} DONE, UNCHANGED, STALE (the store has another position)
]]
-- include: statuses
-- include: keys
-- include: types
-- include: version
-- include: json
-- include: clock
-- include: changes
-- include: identities
-- include: restoring

local by, position = ARGV[1], ARGV[2]
local FIRST_ENTRY, ENTRY_LENGTH = 3, 2

check_tables()
if not may_restore(position) then
  return { position == '' and UNCHANGED or STALE, current_version(), 0 }
end
local missing = {}
for at = FIRST_ENTRY, #ARGV, ENTRY_LENGTH do
  if redis.call('HEXISTS', table_key('identities'), ARGV[at]) == 0 then
    missing[#missing + 1] = { name = ARGV[at], packed = ARGV[at + 1], role = cjson.decode(ARGV[at + 1]).role }
  end
end
for _, lost in ipairs(missing) do
  put_identity(lost.name, lost.packed, lost.role, 'restored', by)
end
return { #missing > 0 and DONE or UNCHANGED, current_version(), #missing }
