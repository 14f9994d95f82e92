--[[
Restores identities that the store has lost: only those that it does not have, and only until one worker has restored
all.

KEYS[1]   meta

ARGV[1]   by  JSON members `"actor":…,"source":…` for the history
ARGV[2…]  name, packed identity

reply     {status, version, number written} DONE, UNCHANGED
]]
-- include: statuses
-- include: keys
-- include: version
-- include: json
-- include: clock
-- include: changes
-- include: identities
-- include: restoring

local by = ARGV[1]
local FIRST_ENTRY, ENTRY_LENGTH = 2, 2

if is_restored() then
  return { UNCHANGED, current_version(), 0 }
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
