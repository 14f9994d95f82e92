--[[
The names of all keys, built from the one key that every script is given. All of a namespace lives in one hash slot, since
its slot tag `{namespace}` is part of the prefix; so a script may touch what it builds here, on a Cluster too.
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
