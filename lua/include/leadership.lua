--[[
Fencing: a script of the leader passes its whole lease, and is refused when that lease is no longer in force.
Uses: keys.
]]
local function is_leader(lease)
  return redis.call('GET', table_key('leader')) == lease
end
