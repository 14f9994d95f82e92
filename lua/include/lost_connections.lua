--[[
Lost connections that no verdict has been reached on. `lost` has the instances whose last session ended: instance →
"<incarnation> <lost ms> <worker that investigates>". Uses: keys, established.
]]
local SESSION_READS_PER_CALL = 2500

-- Checking one instance reads the sessions of every worker. This is how many instances one call may check.
local function instances_per_call()
  return math.max(1, math.floor(SESSION_READS_PER_CALL / (redis.call('ZCARD', table_key('workers')) + 8)))
end

-- The values that an investigation needs: broker, id, incarnation, lost ms, where its connection came from, 1 if it is
-- established.
local function values_of_lost_connection(instance_name, known, lost_ms)
  return known[2], known[3], known[1], lost_ms, known[4] or '', is_established(instance_name) and 1 or 0
end

local function read_for_investigation(instance_name)
  return redis.call('HMGET', key_of('instance', instance_name), 'inc', 'broker', 'id', 'source')
end

-- Whether exactly this loss is still pending. A broker that came back ended it, even if its connection has been lost
-- again since: that is another loss, with an investigation of its own.
local function is_loss_pending(instance_name, incarnation, lost_ms)
  local lost = redis.call('HGET', table_key('lost'), instance_name)
  local known, known_ms = string.match(lost or '', '^(%S+) (%d+) ')
  return known == incarnation and known_ms == lost_ms
end

-- Returns whether this loss was listed.
local function remove_lost_connection(instance_name, incarnation, lost_ms)
  if is_loss_pending(instance_name, incarnation, lost_ms) then
    redis.call('HDEL', table_key('lost'), instance_name)
    return true
  end
  return false
end
