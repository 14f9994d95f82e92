--[[
The one writer of the history. An entry's id is `<ms>-<version>`: ms never falls, versions have no holes, and both are kept
in `meta` by the script that makes the change, so they commit together. So is the number of bytes ever written, about; now and
then it is noted beside the version it belongs to, so that a bound in bytes finds its place without reading the entries.
Uses: keys, clock.
]]
local BYTES_BESIDE_PAYLOAD, BYTES_PER_MARK = 40, 1048576

local function append_change(kind, by, fields)
  local head = redis.call('HMGET', META, 'version', 'ms', 'bytes')
  local version, written = tonumber(head[1] or '0') + 1, tonumber(head[3] or '0')
  local ms = ms_text(math.max(server_ms(), tonumber(head[2] or '0')))
  local payload = '{"v":1,"kind":"' .. kind .. '",' .. by .. (fields ~= '' and ',' or '') .. fields .. '}'
  local bytes = written + #payload + BYTES_BESIDE_PAYLOAD
  redis.call('HSET', META, 'version', ms_text(version), 'ms', ms, 'bytes', ms_text(bytes))
  redis.call('XADD', table_key('changes'), ms .. '-' .. ms_text(version), 'd', payload)
  if math.floor(bytes / BYTES_PER_MARK) > math.floor(written / BYTES_PER_MARK) then
    redis.call('ZADD', table_key('changes:marks'), ms_text(bytes), ms_text(version))
  end
  return version
end
