--[[
The store's clock. No decision uses another one.
]]
local function server_ms()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

local function ms_text(ms)
  return string.format('%.0f', ms)
end
