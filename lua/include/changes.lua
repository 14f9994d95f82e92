--[[
The one writer of the history. An entry's id is `<ms>-<version>`: ms never falls, versions have no holes, and both are kept
in `meta` by the script that makes the change, so they commit together. Uses: keys, clock.
]]
local function append_change(kind, by, fields)
  local version = redis.call('HINCRBY', META, 'version', 1)
  local ms = math.max(server_ms(), tonumber(redis.call('HGET', META, 'ms') or '0'))
  redis.call('HSET', META, 'ms', ms_text(ms))
  local payload = '{"v":1,"kind":"' .. kind .. '",' .. by .. (fields ~= '' and ',' or '') .. fields .. '}'
  redis.call('XADD', table_key('changes'), ms_text(ms) .. '-' .. version, 'd', payload)
  return version
end
