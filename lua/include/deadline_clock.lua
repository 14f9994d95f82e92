--[[
The clock deadlines run on: TIME − deaf_ms. It stops while nobody could be heard, so that an outage of ours expires nobody,
and it neither leaps nor goes back when the server's clock does: between two signs of life of any worker it moves on by at
most BLIND_AFTER_MS. Every worker gives a sign once a second (renew_worker). Who comes first after an outage writes it down, in
the same step, so the history has it once. A clock set back is no outage. Returns the deadline clock, the server's, and the
version, which costs nothing here: this is on the path of every heartbeat. Uses: keys, clock, changes.
]]
local BLIND_AFTER_MS = 5000

local function deadline_clock(by)
  local now = server_ms()
  local seen = redis.call('HMGET', META, 'alive_ms', 'deaf_ms', 'version')
  local alive, deaf, version = tonumber(seen[1] or now), tonumber(seen[2] or '0'), tonumber(seen[3] or '0')
  local gap = now - alive
  if gap > BLIND_AFTER_MS or gap < -BLIND_AFTER_MS then
    deaf = deaf + gap
    redis.call('HSET', META, 'deaf_ms', ms_text(deaf), 'alive_ms', ms_text(now))
    if gap > 0 then
      version = append_change('blind', by, '"from_ms":' .. ms_text(alive) .. ',"to_ms":' .. ms_text(now))
    end
  end
  return now - deaf, now, version
end
