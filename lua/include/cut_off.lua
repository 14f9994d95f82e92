--[[
Whether it is us who are cut off, and not the brokers who are silent: most workers vanished without a farewell, and nobody at all
was heard since by those that are left. Then the store and they are on one side of a network that broke, the fleet and the other
workers on the other. `expiry` holds how many `vanished`, and when the last of them gave its last sign of life: `vanished_ms` on the
server's clock, `vanished_at` on the deadline clock. Uses: keys, clock.
]]
local HEARD_LATER_MS = 3000  -- so long after its own last sign of life a worker may still have heard a broker

local function heard_after(ms)
  local newest = redis.call('ZRANGE', table_key('heartbeats'), -1, -1, 'WITHSCORES')
  return newest[2] ~= nil and tonumber(newest[2]) > ms + HEARD_LATER_MS
end

local function note_vanished(last_sign_ms, last_sign_at)
  local expiry = table_key('expiry')
  local known = redis.call('HMGET', expiry, 'vanished', 'vanished_ms', 'vanished_at')
  local count, ms, at = tonumber(known[1] or '0'), tonumber(known[2] or '0'), tonumber(known[3] or '0')
  if heard_after(ms) then  -- another time, and over
    count, ms, at = 0, 0, 0
  end
  redis.call('HSET', expiry, 'vanished', count + 1, 'vanished_ms', ms_text(math.max(ms, last_sign_ms)),
    'vanished_at', ms_text(math.max(at, last_sign_at)))
end

-- The deadline clock's reading when the last of them was there; false: we are not cut off.
local function cut_off_since(deadline_now)
  local known = redis.call('HMGET', table_key('expiry'), 'vanished', 'vanished_ms', 'vanished_at')
  if not known[1] or heard_after(tonumber(known[2])) then
    return false
  end
  local left = redis.call('ZCOUNT', table_key('workers'), ms_text(deadline_now), '+inf')
  return tonumber(known[1]) > left and tonumber(known[3])
end
