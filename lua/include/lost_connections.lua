--[[
Lost connections that no verdict has been reached on. `lost` has the instances whose last session ended: instance →
"<incarnation> <lost ms> <worker that investigates>". Uses: keys.
]]
local SESSION_READS_PER_CALL = 2500

-- Checking one instance reads the sessions of every worker. This is how many instances one call may check.
local function instances_per_call()
  return math.max(1, math.floor(SESSION_READS_PER_CALL / (redis.call('ZCARD', table_key('workers')) + 8)))
end

-- Returns whether this incarnation was listed.
local function remove_lost_connection(instance_name, incarnation)
  local lost = redis.call('HGET', table_key('lost'), instance_name)
  if lost and string.match(lost, '^(%S+) ') == incarnation then
    redis.call('HDEL', table_key('lost'), instance_name)
    return true
  end
  return false
end
