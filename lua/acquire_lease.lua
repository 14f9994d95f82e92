--[[
Makes a worker the leader if there is none. Fencing tokens only rise, even when a failover lost the counter, because a
new one is at least the time. A lease that lasts longer than any is granted for is shortened: the store's clock was set
back, and a dead leader's lease would last until the clock is there again. A living leader renews it.

KEYS[1]  meta

ARGV[1]  worker
ARGV[2]  nonce     random, so that two leases of one worker differ
ARGV[3]  lease_ms  until it ends unless it is renewed

reply    {status, version, lease in force} DONE, UNCHANGED (there is a leader)
]]
-- include: statuses
-- include: keys
-- include: types
-- include: version
-- include: clock

local worker, nonce, lease_ms = ARGV[1], ARGV[2], ARGV[3]

check_tables()
local held = redis.call('GET', table_key('leader'))
if held then
  if redis.call('PTTL', table_key('leader')) > tonumber(lease_ms) then
    redis.call('PEXPIRE', table_key('leader'), lease_ms)
  end
  return { UNCHANGED, current_version(), held }
end
local token = math.max(tonumber(redis.call('GET', table_key('leader:token')) or '0') + 1, server_ms())
local lease = ms_text(token) .. ':' .. worker .. ':' .. nonce
redis.call('SET', table_key('leader:token'), ms_text(token))
redis.call('SET', table_key('leader'), lease, 'PX', lease_ms)
return { DONE, current_version(), lease }
