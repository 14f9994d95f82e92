--[[
Appends to the history; nothing else does. An entry's id is `<ms>-<version>`: ms never falls, and versions have no
holes. The script that makes a change also raises both in `meta`, so they are committed together. `meta` also counts
about how many bytes were ever appended. Once per MiB that count is noted with the version, so that a limit in bytes
can be applied without reading entries. Uses: keys, clock.
]]
local BYTES_BESIDE_PAYLOAD, BYTES_PER_MARK = 40, 1048576

-- Returns the time in the entry's id. It is later than `ms` only if `meta` was deleted and the clock was set back: an id
-- must be greater than the one before.
local function append_entry(ms, version, payload)
  local key = table_key('changes')
  local reply = redis.pcall('XADD', key, ms .. '-' .. ms_text(version), 'd', payload)
  if type(reply) == 'table' and reply.err then
    local last = redis.call('XREVRANGE', key, '+', '-', 'COUNT', 1)[1]
    ms = ms_text(tonumber(string.match(last[1], '^%d+')) + 1)
    redis.call('XADD', key, ms .. '-' .. ms_text(version), 'd', payload)
  end
  return ms
end

-- `queues`: the items of a field `queues` that ends the entry, or nil. `before`, `former`: the members, and the items
-- of a member `queues`, of a field `before`; nil or empty for none. They are parameters of their own because the items
-- may have 200 KB, and every expression with `..` copies them.
local function append_change(kind, by, fields, queues, before, former)
  local head = redis.call('HMGET', META, 'version', 'ms', 'bytes')
  local version, written = tonumber(head[1] or '0') + 1, tonumber(head[3] or '0')
  local ms = ms_text(math.max(server_ms(), tonumber(head[2] or '0')))
  local opening = '{"v":1,"kind":"' .. kind .. '",' .. by .. (fields ~= '' and ',' or '') .. fields
  local payload
  if former and former ~= '' then
    local comma = before ~= '' and ',' or ''
    payload = opening .. ',"before":{' .. before .. comma .. '"queues":[' .. former .. ']},"queues":[' .. queues .. ']}'
  else
    opening = opening .. (before and before ~= '' and ',"before":{' .. before .. '}' or '')
    payload = queues and opening .. ',"queues":[' .. queues .. ']}' or opening .. '}'
  end
  local bytes = written + #payload + BYTES_BESIDE_PAYLOAD
  ms = append_entry(ms, version, payload)
  redis.call('HSET', META, 'version', ms_text(version), 'ms', ms, 'bytes', ms_text(bytes))
  if math.floor(bytes / BYTES_PER_MARK) > math.floor(written / BYTES_PER_MARK) then
    redis.call('ZADD', table_key('changes:marks'), ms_text(bytes), ms_text(version))
  end
  return version
end
