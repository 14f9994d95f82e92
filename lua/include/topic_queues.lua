--[[
One topic on several brokers: the queue tables are kept by broker. Uses: keys, json, changes, groups.
]]
local function append_queue_change(broker, item, cause, by)
  local cluster = redis.call('HGET', key_of('broker', broker), 'cluster')
  local version = append_change('queues-changed', by, '"cluster":' .. (cluster and quote(cluster) or 'null')
    .. ',"broker":' .. quote(broker) .. ',"queues":[' .. item .. '],"cause":"' .. cause .. '"')
  if cluster then
    set_revision(broker, version)
  end
  return version
end
