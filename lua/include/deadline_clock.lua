--[[
The clock deadlines run on: TIME − paused_ms. It stops while nobody could be heard, so that an outage of ours expires nobody,
and it neither leaps nor goes back when the server's clock does: between two signs of life of any worker it moves on by at
most PAUSE_AFTER_MS. Every worker gives a sign once a second (renew_worker_lease). Who comes first after an outage writes it down, in
the same step, so the history has it once. A clock set back is no outage. Returns the deadline clock, the server's, and the
version, which costs nothing here: this is on the path of every heartbeat. Uses: keys, clock, changes.
]]
local PAUSE_AFTER_MS = 5000

local function deadline_clock(by)
  local now = server_ms()
  local seen = redis.call('HMGET', META, 'alive_ms', 'paused_ms', 'version')
  local alive, paused, version = tonumber(seen[1] or now), tonumber(seen[2] or '0'), tonumber(seen[3] or '0')
  local gap = now - alive
  if gap > PAUSE_AFTER_MS or gap < -PAUSE_AFTER_MS then
    paused = paused + gap
    redis.call('HSET', META, 'paused_ms', ms_text(paused), 'alive_ms', ms_text(now))
    if gap > 0 then
      version = append_change('expiry-paused', by, '"from_ms":' .. ms_text(alive) .. ',"to_ms":' .. ms_text(now))
    end
  end
  return now - paused, now, version
end
