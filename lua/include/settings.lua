--[[
Stores a run-time setting, which applies to all workers. Uses: keys, json, changes.
]]
local function put_setting(key, value, shown, by)
  redis.call('HSET', table_key('settings'), key, value)
  return append_change('settings-changed', by, '"key":' .. quote(key) .. ',"value":' .. quote(shown))
end
