--[[
Reads a whole hash into a Lua table. Only for small hashes, such as a group or an instance: it blocks the store
meanwhile.
]]
local function read_hash(key)
  local flat, fields = redis.call('HGETALL', key), {}
  for i = 1, #flat, 2 do
    fields[flat[i]] = flat[i + 1]
  end
  return fields
end
