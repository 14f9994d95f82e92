--[[
After a loss each worker that remembers writes back; the first one to finish ends it, so that a slower one does not bring
back what was deleted since. Uses: keys.
]]
local function is_restored()
  return redis.call('HEXISTS', META, 'restored') == 1
end
