--[[
A whole hash as a Lua table. For small hashes only (a group, an instance): the store is blocked meanwhile.
]]
local function read_hash(key)
  local flat, fields = redis.call('HGETALL', key), {}
  for i = 1, #flat, 2 do
    fields[flat[i]] = flat[i + 1]
  end
  return fields
end
