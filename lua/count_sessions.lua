--[[
Counts the sessions that ended recently. When many end together, the network is more likely the cause than the
brokers.

KEYS[1]  meta

ARGV[1]  since_ms  on the store's clock

reply    {status, version, sessions ended since then, open sessions, lost connections without a verdict,
          1 while the workers are cut off (scan_deadlines), established instances} UNCHANGED
]]
-- include: statuses
-- include: keys
-- include: version
-- include: clock
-- include: established

local since_ms = ARGV[1]

local open = 0
for _, worker in ipairs(redis.call('ZRANGE', table_key('workers'), 0, -1)) do
  open = open + redis.call('HLEN', key_of('sessions', worker))
end
local ended = redis.call('ZCOUNT', table_key('ended'), since_ms, '+inf')
local lost, cut_off = redis.call('HLEN', table_key('lost')), redis.call('HEXISTS', table_key('expiry'), 'paused_at')
return { UNCHANGED, current_version(), ended, open, lost, cut_off, count_established() }
