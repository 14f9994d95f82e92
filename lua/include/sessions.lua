--[[
Connections by worker: `sessions:<worker>` holds member → "<connections> <incarnation>". A new incarnation starts counting
anew: the connections of the former one say nothing about it. Uses: keys.
]]
local function open_session(worker, member, incarnation)
  local key = key_of('sessions', worker)
  local held = redis.call('HGET', key, member)
  local count, held_for = string.match(held or '', '^(%d+) (.*)$')
  if held_for ~= incarnation then
    count = 0
  end
  redis.call('HSET', key, member, (count + 1) .. ' ' .. incarnation)
end

local function has_session(member, incarnation)
  for _, worker in ipairs(redis.call('ZRANGE', table_key('workers'), 0, -1)) do
    local held = redis.call('HGET', key_of('sessions', worker), member)
    if held and string.match(held, '^%d+ (.*)$') == incarnation then
      return true
    end
  end
  return false
end
