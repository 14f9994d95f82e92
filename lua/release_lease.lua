--[[
Gives up the leader's lease, so that the next leader does not have to wait for its end.

KEYS[1]  meta

ARGV[1]  lease  the leader's whole lease

reply    {status, version} DONE, FENCED (it had ended)
]]
-- include: statuses
-- include: keys
-- include: types
-- include: version
-- include: leadership

local lease = ARGV[1]

check_tables()
if not is_leader(lease) then
  return { FENCED, current_version() }
end
redis.call('DEL', table_key('leader'))
return { DONE, current_version() }
