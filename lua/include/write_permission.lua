--[[
The permission of all of a broker's topics at once. Most topics carry the same few values, so each distinct value is worked
out once. Returns how many entries there are and how many changed. Uses: keys, slices.
]]
local PERM_WRITE = 2

local function change_permissions(broker, new_permission)
  local key = key_of('queues', broker)
  local flat, becomes, changed = redis.call('HGETALL', key), {}, {}
  for i = 1, #flat, 2 do
    local packed = flat[i + 1]
    local after = becomes[packed]
    if not after then
      local perm, rest = string.match(packed, '^(%-?%d+)( .*)$')
      after = new_permission(tonumber(perm)) .. rest
      becomes[packed] = after
    end
    if after ~= packed then
      changed[#changed + 1] = flat[i]
      changed[#changed + 1] = after
    end
  end
  call_in_slices('HSET', key, changed, 1, #changed)
  return #flat / 2, #changed / 2
end

local function without_write(perm)
  return bit.band(perm, bit.bnot(PERM_WRITE))
end
