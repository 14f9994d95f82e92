--[[
A sign of life: who was heard when (server's clock), and until when it counts (deadline clock). Uses: keys, clock.
]]
local function mark_heard(member, timeout_ms, deadline_now, server_now)
  redis.call('ZADD', table_key('heartbeats'), ms_text(server_now), member)
  redis.call('ZADD', table_key('deadlines'), ms_text(deadline_now + tonumber(timeout_ms)), member)
end
