--[[
Key-values and settings that the store lost are written back by every worker that remembers them. The first worker to
finish marks them as restored, so that a slower one does not write back what was deleted since. Uses: keys.
]]
local function is_restored()
  return redis.call('HEXISTS', META, 'restored') == 1
end
