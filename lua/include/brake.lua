--[[
The one brake over removals. Expiries, lost connections and unregistrations (104) count together: when more than
`percent` of the established instances, and at least `minimum` of them, would be removed within `window` ms, further
removals are held until an operator releases them, or the brokers send heartbeats again. `removals` has the established
instances that were removed within the window, `held` those whose removal is held, both by the deadline clock; a
heartbeat takes an instance out of `held`. The hold is in force while `expiry` has `held_since_ms`. It does not concern
what an operator removes, instances that hold no seat, and instances that are not established. Uses: keys, version,
clock, changes, established.
]]
local function is_hold_in_force()
  return redis.call('HEXISTS', table_key('expiry'), 'held_since_ms') == 1
end

local RETURNED_PER_SCAN = 1000

-- During a hold the removals that led to it are kept, so that it does not end merely because time has passed. Those
-- whose instance has registered again are not kept: otherwise a single dead broker would hold although all others are
-- back.
local function count_removals(window, deadline_now)
  local removals, oldest = table_key('removals'), ms_text(deadline_now - window)
  if not is_hold_in_force() then
    redis.call('ZREMRANGEBYSCORE', removals, '-inf', oldest)
    return redis.call('ZCARD', removals)
  end
  for _, instance_name in ipairs(redis.call('ZRANGEBYSCORE', removals, '-inf', oldest, 'LIMIT', 0, RETURNED_PER_SCAN)) do
    if redis.call('ZSCORE', table_key('deadlines'), instance_name) then
      redis.call('ZREM', removals, instance_name)
    end
  end
  return redis.call('ZCARD', removals)
end

local function record_removal(instance_name, deadline_now)
  redis.call('ZADD', table_key('removals'), ms_text(deadline_now), instance_name)
end

-- `waiting`: established instances that would be removed now, or whose removal is held.
local function are_too_many(brake, waiting, deadline_now)
  local removed = count_removals(brake.window, deadline_now)
  local total = removed + count_established()
  local gone = removed + waiting
  return waiting > 0 and gone >= brake.minimum and gone * 100 > brake.percent * total
end

-- `brokers`: JSON list of names. Returns the version, and whether the hold began now.
local function begin_hold(by, brokers)
  if redis.call('HSETNX', table_key('expiry'), 'held_since_ms', ms_text(server_ms())) == 0 then
    return current_version(), false
  end
  redis.call('HSET', table_key('expiry'), 'brokers', brokers)
  return append_change('expiry-held', by, '"brokers":' .. brokers), true
end

-- Whether the removal of one more established instance has to be held. Without a hold in force, none is waiting.
local function must_hold(brake, deadline_now)
  return is_hold_in_force() or are_too_many(brake, 1, deadline_now)
end

local function is_held(instance_name)
  return redis.call('ZSCORE', table_key('held'), instance_name) and true or false
end

local function hold_removal(instance_name, deadline_now)
  redis.call('ZADD', table_key('held'), ms_text(deadline_now), instance_name)
end
