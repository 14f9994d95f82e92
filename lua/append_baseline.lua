--[[
Appends one part of a baseline: some of what a group is now. The first part has the group itself and its seats; each
part has one page of its topics. A group that was removed since the leader listed it is left out, since its own entry
says so.

KEYS[1]  meta

ARGV[1]  by      JSON members `"actor":…,"source":…` for the history
ARGV[2]  lease   the leader's whole lease
ARGV[3]  broker  name of the group
ARGV[4]  cursor  where the part before ended, empty for the first part

reply    {status, version, number of entries, cursor} DONE, FENCED. cursor: empty after the last part
]]
-- include: statuses
-- include: keys
-- include: types
-- include: version
-- include: hashes
-- include: json
-- include: clock
-- include: changes
-- include: leadership
-- include: integers
-- include: groups
-- include: entry_parts

local by, lease, broker, cursor = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local TOPICS_PER_PART = 500

check_tables()
for _, name in ipairs(redis.call('SMEMBERS', table_key('clusters'))) do
  check_group(name, broker)
end
if not is_leader(lease) then
  return { FENCED, current_version(), 0, '' }
end
local group = read_hash(key_of('broker', broker))
local clusters = clusters_of(broker)
if not group.cluster and #clusters == 0 then
  return { DONE, current_version(), 0, '' }
end

local appended = 0
local owner = '"cluster":' .. quote(group.cluster or clusters[1]) .. ',"broker":' .. quote(broker)
local flags = ',"zone":' .. (group.zone and quote(group.zone) or 'null')
  .. ',"acting":' .. tostring(group.acting == '1')

local function append_seat(cluster, id, address, instance)
  append_change('baseline-seat', by, '"cluster":' .. quote(cluster) .. ',"broker":' .. quote(broker) .. ',"id":' .. id
    .. ',"addr":' .. quote(address) .. ',"incarnation":"' .. (instance.inc or '') .. '","first":false' .. flags
    .. ',"ha":' .. quote(instance.ha or '') .. ',"timeout_ms":' .. (instance.timeout or 'null'))
  appended = appended + 1
end

-- A broker may have registered with another cluster than its group's: look for its instance under each.
local function append_seats()
  for id, address in pairs(seats_of(group)) do
    local is_appended = false
    for _, cluster in ipairs(clusters) do
      local instance = read_hash(key_of('instance', join_instance_name(cluster, address)))
      if instance.broker == broker and instance.id == id then
        append_seat(cluster, id, address, instance)
        is_appended = true
      end
    end
    if not is_appended then
      append_seat(group.cluster, id, address, {})
    end
  end
end

-- Returns the JSON of a queue item, and whether the topic was registered by request.
local function queue_item(topic, packed)
  return item_of(topic, packed), not string.find(packed, '^%-?%d+ %-?%d+ %-?%d+ %-?%d+$')
end

local function append_queues(cause, items, group_fields)
  local chunks = {}
  for i, item in ipairs(items) do
    chunks[i] = { 1, item, '' }
  end
  for _, part in ipairs(cut_into_parts(chunks, {})) do
    local queues = table.concat(part.queues, ',')
    append_change('baseline-queues', by, owner .. group_fields .. ',"queues":[' .. queues .. '],"cause":"' .. cause .. '"')
    appended = appended + 1
  end
end

local first_fields = ''
if cursor == '' then
  append_seats()
  first_fields = ',"clusters":' .. string_list(clusters) .. flags .. (group.cluster and '' or ',"group_removed":true')
  cursor = '0'
end
local page = redis.call('HSCAN', key_of('queues', broker), cursor, 'COUNT', TOPICS_PER_PART)
local registered, requested = {}, {}
for i = 1, #page[2], 2 do
  local item, by_request = queue_item(page[2][i], page[2][i + 1])
  table.insert(by_request and requested or registered, item)
end
if #registered > 0 or first_fields ~= '' then
  append_queues('registration', registered, first_fields)
end
if #requested > 0 then
  append_queues('register-topic', requested, '')
end
return { DONE, current_version(), appended, page[1] == '0' and '' or page[1] }
