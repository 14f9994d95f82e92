--[[
The clock that deadlines use: TIME − paused_ms. It stops while no worker can receive heartbeats, so an outage of the
service expires no broker. It does not jump when the store's clock is set, either: between two renewals of worker
leases it advances by at most PAUSE_AFTER_MS. Every worker renews its lease once a second (renew_worker_lease). The
first script after an outage adds the gap to paused_ms and appends `expiry-paused`, so the history has it once. A
clock that was set back is no outage and gets no entry. Returns the deadline clock, the store's clock and the version
of the route table. Every heartbeat runs this function; the version costs nothing here, because `meta` is read anyway.
Uses: keys, types, clock, changes.
]]
local PAUSE_AFTER_MS = 5000

local function deadline_clock(by)
  local now = server_ms()
  local seen = redis.call('HMGET', META, 'alive_ms', 'paused_ms', 'version')
  local alive, paused, version = tonumber(seen[1] or now), tonumber(seen[2] or '0'), tonumber(seen[3] or '0')
  local gap = now - alive
  if gap > PAUSE_AFTER_MS or gap < -PAUSE_AFTER_MS then
    check_tables()
    paused = paused + gap
    redis.call('HSET', META, 'paused_ms', ms_text(paused), 'alive_ms', ms_text(now))
    if gap > 0 then
      version = append_change('expiry-paused', by, '"from_ms":' .. ms_text(alive) .. ',"to_ms":' .. ms_text(now))
    end
  end
  return now - paused, now, version
end
