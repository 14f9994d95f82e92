--[[
Fencing: whoever acts as leader names its whole lease, and an older token, or another holder of it, is refused. Uses: keys.
]]
local function leads(lease)
  return redis.call('GET', table_key('leader')) == lease
end
