--[[
Finds what the reply to a slave contains: the address of its group's live master, and the address to replicate from.
Uses: keys.
]]
local function master_of(cluster, broker, id)
  local master = id ~= '0' and redis.call('HGET', key_of('broker', broker), 'addr:0')
  if not master then
    return '', ''
  end
  local live = redis.call('HMGET', key_of('instance', join_instance_name(cluster, master)), 'inc', 'ha')
  if not live[1] then
    return '', ''
  end
  return master, live[2] or ''
end
