--[[
Deletes an identity with its credentials.

KEYS[1]  meta

ARGV[1]  by       JSON members `"actor":…,"source":…` for the history
ARGV[2]  name
ARGV[3]  carried  1: workers still show what the store has lost, so append the deletion even if the name is not here

reply    {status, version} DONE, UNKNOWN
]]
-- include: statuses
-- include: keys
-- include: types
-- include: version
-- include: json
-- include: clock
-- include: changes

local by, name, carried = ARGV[1], ARGV[2], ARGV[3] == '1'

check_tables()
if redis.call('HDEL', table_key('identities'), name) == 0 and not carried then
  return { UNKNOWN, current_version() }
end
return { DONE, append_change('identity-changed', by, '"name":' .. quote(name) .. ',"cause":"revoked"') }
