--[[
Appends the change of one topic in one group. Uses: keys, json, changes, groups.
]]
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
