--[[
Stores and deletes run-time settings, which apply to all workers. Uses: keys, json, changes.
]]
-- `shown` is what the history shows of the value, masked if it is a secret. Then the former value is masked as well.
local function put_setting(key, value, shown, by)
  local before = redis.call('HGET', table_key('settings'), key)
  local before_shown = before and quote(shown == value and before or shown) or 'null'
  redis.call('HSET', table_key('settings'), key, value)
  return append_change('settings-changed', by,
    '"key":' .. quote(key) .. ',"value":' .. quote(shown) .. ',"before":' .. before_shown)
end

-- `shown` is what the history shows instead of the deleted value, which is a secret; '' if it is none.
local function delete_setting(key, shown, by)
  local before = redis.call('HGET', table_key('settings'), key)
  local before_shown = before and quote(shown == '' and before or shown) or 'null'
  redis.call('HDEL', table_key('settings'), key)
  return append_change('settings-changed', by,
    '"key":' .. quote(key) .. ',"value":null,"before":' .. before_shown)
end
