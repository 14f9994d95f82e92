--[[
Decides whether values that a worker remembers may be written back. `position` is where the worker's replica stands,
`<history>:<version>`: while the store stands there too, every change that removed something is known to the worker,
so a value that the store lacks was deleted without one. An empty `position` means that the store lost its data, which
began a new history. Then every worker writes back what it remembers, and the first one to finish marks it as
restored, so that a slower one does not write back what was deleted since. Uses: keys.
]]
local function is_at(position)
  local head = redis.call('HMGET', META, 'history', 'version')
  return position == (head[1] or '') .. ':' .. (head[2] or '0')
end

local function is_restored()
  return redis.call('HEXISTS', META, 'restored') == 1
end

local function may_restore(position)
  if position == '' then
    return not is_restored()
  end
  return is_at(position)
end
