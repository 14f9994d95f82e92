--[[
Records a heartbeat: when it arrived (store's clock), and the new deadline (deadline clock). Returns the ms since the
heartbeat before, or -1 if there was none. A removal that is held is forgotten, because the broker lives. Uses: keys,
clock, established.
]]
local function record_heartbeat(instance_name, timeout_ms, deadline_now, server_now)
  local heartbeats = table_key('heartbeats')
  local before = redis.call('ZSCORE', heartbeats, instance_name)
  redis.call('ZADD', heartbeats, ms_text(server_now), instance_name)
  redis.call('ZADD', table_key('deadlines'), ms_text(deadline_now + tonumber(timeout_ms)), instance_name)
  redis.call('ZREM', table_key('held'), instance_name)
  establish_when_old_enough(instance_name, deadline_now)
  return before and math.max(server_now - tonumber(before), 0) or -1
end
