--[[
Builds the names of all keys from the one key that every script is given. The prefix contains the slot tag
`{namespace}`, so all keys of a namespace are in one hash slot, and a script may use the keys that it builds here on a
Cluster too.
]]
local prefix = string.match(KEYS[1], '^(rb:{[^}]+}:)meta$')
local META = KEYS[1]

local function table_key(name)
  return prefix .. name
end

local function key_of(kind, name)
  return prefix .. kind .. ':' .. name
end

local function join_instance_name(cluster, address)
  return cluster .. '/' .. address
end
