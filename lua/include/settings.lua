--[[
Stores a run-time setting, which applies to all workers. Uses: keys, json, changes.
]]
-- A value that may not be shown masks the one before it as well.
local function put_setting(key, value, shown, by)
  local before = redis.call('HGET', table_key('settings'), key)
  local before_shown = before and quote(shown == value and before or shown) or 'null'
  redis.call('HSET', table_key('settings'), key, value)
  return append_change('settings-changed', by,
    '"key":' .. quote(key) .. ',"value":' .. quote(shown) .. ',"before":' .. before_shown)
end
