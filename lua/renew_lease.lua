--[[
Renews the leader's lease.

KEYS[1]  meta

ARGV[1]  lease     the leader's whole lease
ARGV[2]  lease_ms  until it ends unless it is renewed again

reply    {status, version} DONE, FENCED (it had ended)
]]
-- include: statuses
-- include: keys
-- include: types
-- include: version
-- include: leadership

local lease, lease_ms = ARGV[1], ARGV[2]

check_tables()
if not is_leader(lease) then
  return { FENCED, current_version() }
end
redis.call('PEXPIRE', table_key('leader'), lease_ms)
return { DONE, current_version() }
