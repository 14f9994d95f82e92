--[[
A sign of life: who was heard when (server's clock), and until when it counts (deadline clock). Returns the gap since the one
before it in ms, -1 when there was none. Uses: keys, clock.
]]
local function mark_heard(instance_name, timeout_ms, deadline_now, server_now)
  local heartbeats = table_key('heartbeats')
  local before = redis.call('ZSCORE', heartbeats, instance_name)
  redis.call('ZADD', heartbeats, ms_text(server_now), instance_name)
  redis.call('ZADD', table_key('deadlines'), ms_text(deadline_now + tonumber(timeout_ms)), instance_name)
  return before and math.max(server_now - tonumber(before), 0) or -1
end
