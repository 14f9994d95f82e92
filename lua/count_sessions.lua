--[[
How many of all sessions ended lately: so many together are no broker's doing, but the network's.

KEYS[1]  meta

ARGV[1]  since_ms  by the server's clock

reply    {status, version, sessions that ended since, sessions that are open, instances lost and not settled,
          1 while we are cut off (scan_deadlines)} UNCHANGED
]]
-- include: statuses
-- include: keys
-- include: version

local since_ms = ARGV[1]

local open = 0
for _, worker in ipairs(redis.call('ZRANGE', table_key('workers'), 0, -1)) do
  open = open + redis.call('HLEN', key_of('sessions', worker))
end
local ended = redis.call('ZCOUNT', table_key('ended'), since_ms, '+inf')
local lost, cut_off = redis.call('HLEN', table_key('lost')), redis.call('HEXISTS', table_key('expiry'), 'paused_at')
return { UNCHANGED, current_version(), ended, open, lost, cut_off }
