--[[
Stores an identity: `packed` is a JSON object with its role, its policy and its credentials. The history gets no
secrets. Uses: keys, json, changes.
]]
local function put_identity(name, packed, role, cause, by)
  redis.call('HSET', table_key('identities'), name, packed)
  return append_change('identity-changed', by,
    '"name":' .. quote(name) .. ',"role":' .. quote(role) .. ',"cause":"' .. cause .. '"')
end
