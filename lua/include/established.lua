--[[
Established instances: those that have sent heartbeats for ESTABLISHED_AFTER_MS since they registered, which is two
registration periods. Only they count for the brake (include/brake), so an instance that registers and then falls
silent neither causes a hold nor makes the fleet look larger. `new-instances` has all others, by the time of their
registration (deadline clock). An instance is established at once when it registers within that time after the first
instance of an empty table (`began_at` of `meta`), since then the whole fleet registers: the store is new, or lost its
data, or a snapshot is imported. The same holds when it returns soon after its removal.
Uses: keys, clock.
]]
local ESTABLISHED_AFTER_MS = 60000

local function is_established(instance_name)
  return not redis.call('ZSCORE', table_key('new-instances'), instance_name)
end

local function count_established()
  return redis.call('ZCARD', table_key('deadlines')) - redis.call('ZCARD', table_key('new-instances'))
end

-- A new incarnation begins.
local function record_new_instance(instance_name, deadline_now)
  if redis.call('ZCARD', table_key('deadlines')) == 0 then
    redis.call('HSET', META, 'began_at', ms_text(deadline_now))
  end
  local began_at = tonumber(redis.call('HGET', META, 'began_at') or '0')
  local is_table_young = deadline_now - began_at <= ESTABLISHED_AFTER_MS
  if is_table_young or redis.call('ZSCORE', table_key('removals'), instance_name) then
    redis.call('ZREM', table_key('new-instances'), instance_name)
  else
    redis.call('ZADD', table_key('new-instances'), ms_text(deadline_now), instance_name)
  end
end

local function registered_at(instance_name)
  return redis.call('ZSCORE', table_key('new-instances'), instance_name)
end

-- `since`: what registered_at returned.
local function establish_when_old_enough(instance_name, since, deadline_now)
  if since and deadline_now - tonumber(since) >= ESTABLISHED_AFTER_MS then
    redis.call('ZREM', table_key('new-instances'), instance_name)
  end
end
