--[[
Keeps the leader in office.

KEYS[1]  meta

ARGV[1]  lease     the whole of it
ARGV[2]  lease_ms

reply    {status, version} DONE, FENCED (it was lost)
]]
-- include: statuses
-- include: keys
-- include: version
-- include: leadership

local lease, lease_ms = ARGV[1], ARGV[2]

if not is_leader(lease) then
  return { FENCED, current_version() }
end
redis.call('PEXPIRE', table_key('leader'), lease_ms)
return { DONE, current_version() }
