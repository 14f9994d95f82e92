--[[
Appends the change of one topic in one group. Uses: keys, json, changes, groups.
]]
-- The queue item of a packed queue entry.
local function item_of(topic, packed)
  local perm, read, write, flags = string.match(packed, '^(%-?%d+) (%-?%d+) (%-?%d+) (%-?%d+)')
  return '{"t":' .. quote(topic) .. ',"r":' .. read .. ',"w":' .. write .. ',"p":' .. perm .. ',"f":' .. flags .. '}'
end

-- `before`: the entry that was there, packed, or nil. `last_cluster` is used when the store does not have the group.
local function append_queue_change(broker, topic, before, item, cause, by, last_cluster)
  local cluster = redis.call('HGET', key_of('broker', broker), 'cluster')
  local version = append_change('queues-changed', by, '"cluster":' .. quote(cluster or last_cluster)
    .. ',"broker":' .. quote(broker) .. ',"queues":[' .. item .. '],"before":['
    .. (before and item_of(topic, before) or '') .. '],"cause":"' .. cause .. '"')
  if cluster then
    set_revision(broker, version)
  end
  return version
end
