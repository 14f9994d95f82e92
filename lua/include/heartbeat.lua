--[[
Records a heartbeat: when it arrived (store's clock), and the new deadline (deadline clock). Returns the ms since the
heartbeat before, or -1 if there was none. A removal that is held is forgotten, because the broker lives. Uses: keys,
clock, established.
]]
local function read_heartbeat(instance_name)
  redis.call('ZSCORE', table_key('deadlines'), instance_name)  -- fails if it has another type, before the first write
  return {
    before = redis.call('ZSCORE', table_key('heartbeats'), instance_name),
    is_removal_held = redis.call('ZSCORE', table_key('held'), instance_name),
    registered_at = registered_at(instance_name),
  }
end

local function write_heartbeat(known, instance_name, timeout_ms, deadline_now, server_now)
  redis.call('ZADD', table_key('heartbeats'), ms_text(server_now), instance_name)
  redis.call('ZADD', table_key('deadlines'), ms_text(deadline_now + tonumber(timeout_ms)), instance_name)
  if known.is_removal_held then
    redis.call('ZREM', table_key('held'), instance_name)
  end
  establish_when_old_enough(instance_name, known.registered_at, deadline_now)
  return known.before and math.max(server_now - tonumber(known.before), 0) or -1
end

local function record_heartbeat(instance_name, timeout_ms, deadline_now, server_now)
  return write_heartbeat(read_heartbeat(instance_name), instance_name, timeout_ms, deadline_now, server_now)
end
