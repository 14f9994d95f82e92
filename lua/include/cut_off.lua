--[[
Decides whether the workers that remain are cut off from the brokers. They are when more workers vanished without
deregistering than remain, and no broker has sent a heartbeat since: then the network probably separates the store and
these workers from everything else, and silent brokers may well be alive. `expiry` has how many workers `vanished`,
and the latest moment at which one of them was alive: `vanished_ms` on the store's clock, `vanished_at` on the
deadline clock. Uses: keys, clock.
]]
local HEARTBEAT_AFTER_MS = 3000  -- a worker may receive a heartbeat this long after it last renewed its lease

local function has_heartbeat_after(ms)
  local newest = redis.call('ZRANGE', table_key('heartbeats'), -1, -1, 'WITHSCORES')
  return newest[2] ~= nil and tonumber(newest[2]) > ms + HEARTBEAT_AFTER_MS
end

local function record_vanished_worker(alive_ms, alive_at)
  local expiry = table_key('expiry')
  local known = redis.call('HMGET', expiry, 'vanished', 'vanished_ms', 'vanished_at')
  local count, ms, at = tonumber(known[1] or '0'), tonumber(known[2] or '0'), tonumber(known[3] or '0')
  if has_heartbeat_after(ms) then  -- those belong to an earlier incident, which is over
    count, ms, at = 0, 0, 0
  end
  redis.call('HSET', expiry, 'vanished', count + 1, 'vanished_ms', ms_text(math.max(ms, alive_ms)),
    'vanished_at', ms_text(math.max(at, alive_at)))
end

-- Returns the value of the deadline clock when the last vanished worker was alive, or false when the workers are not
-- cut off.
local function cut_off_since(deadline_now)
  local known = redis.call('HMGET', table_key('expiry'), 'vanished', 'vanished_ms', 'vanished_at')
  if not known[1] or has_heartbeat_after(tonumber(known[2])) then
    return false
  end
  local remaining = redis.call('ZCOUNT', table_key('workers'), ms_text(deadline_now), '+inf')
  return tonumber(known[1]) > remaining and tonumber(known[3])
end
