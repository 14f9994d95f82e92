--[[
How far the route table has come: the number of the last change. Uses: keys.
]]
local function current_version()
  return tonumber(redis.call('HGET', META, 'version') or '0')
end
