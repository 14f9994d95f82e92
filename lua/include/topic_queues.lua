--[[
Appends the change of one topic in one group. Uses: keys, json, changes, groups.
]]
-- `last_cluster` is used when the store does not have the group.
local function append_queue_change(broker, item, cause, by, last_cluster)
  local cluster = redis.call('HGET', key_of('broker', broker), 'cluster')
  local version = append_change('queues-changed', by, '"cluster":' .. quote(cluster or last_cluster)
    .. ',"broker":' .. quote(broker) .. ',"queues":[' .. item .. '],"cause":"' .. cause .. '"')
  if cluster then
    set_revision(broker, version)
  end
  return version
end
