--[[
The version of the route table: the number of its last change. Uses: keys.
]]
local function current_version()
  return tonumber(redis.call('HGET', META, 'version') or '0')
end
