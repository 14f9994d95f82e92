--[[
What is looked into by a worker, because the last session of an instance ended. Uses: keys.
]]
local LOOKS_PER_CALL = 2500

-- How many members may be looked up in the sessions of all workers before the store has been blocked for long.
local function members_per_call()
  return math.max(1, math.floor(LOOKS_PER_CALL / (redis.call('ZCARD', table_key('workers')) + 8)))
end

local function settle_loss(instance_name, incarnation)
  local lost = redis.call('HGET', table_key('lost'), instance_name)
  if lost and string.match(lost, '^(%S+) ') == incarnation then
    redis.call('HDEL', table_key('lost'), instance_name)
    return true
  end
  return false
end
