--[[
Steps down, so that the next leader need not wait.

KEYS[1]  meta

ARGV[1]  lease  the whole of it

reply    {status, version} DONE, FENCED (it was lost before)
]]
-- include: statuses
-- include: keys
-- include: version
-- include: leadership

local lease = ARGV[1]

if not is_leader(lease) then
  return { FENCED, current_version() }
end
redis.call('DEL', table_key('leader'))
return { DONE, current_version() }
