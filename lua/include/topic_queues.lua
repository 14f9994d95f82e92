--[[
One topic on several brokers: the queue tables are kept by broker. Uses: keys, json, changes, groups.
]]
-- `last_cluster`: of a group that the store does not have.
local function append_queue_change(broker, item, cause, by, last_cluster)
  local cluster = redis.call('HGET', key_of('broker', broker), 'cluster')
  local version = append_change('queues-changed', by, '"cluster":' .. quote(cluster or last_cluster)
    .. ',"broker":' .. quote(broker) .. ',"queues":[' .. item .. '],"cause":"' .. cause .. '"')
  if cluster then
    set_revision(broker, version)
  end
  return version
end
