--[[
One part of a baseline: some of what a group is now. First its seats and the group itself, then its topics, as many at a time as
one look into the hash gives. A group that has gone since the leader listed it is left out: its own entry said so.

KEYS[1]  meta

ARGV[1]  by      JSON members `"actor":…,"source":…` for the history
ARGV[2]  lease   the leader's whole lease
ARGV[3]  broker  name of the group
ARGV[4]  place   where the part before ended, empty to begin

reply    {status, version, entries appended, place to go on from} DONE, FENCED. An empty place: the group is told
]]
-- include: statuses
-- include: keys
-- include: version
-- include: hashes
-- include: json
-- include: clock
-- include: changes
-- include: leadership
-- include: groups
-- include: entry_parts

local by, lease, broker, place = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local TOPICS_PER_PART = 500

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
local flags = ',"zone":' .. (group.zone and quote(group.zone) or 'null') .. ',"acting":' .. tostring(group.acting == '1')

local function tell_seat(cluster, id, address, instance)
  append_change('baseline-seat', by, '"cluster":' .. quote(cluster) .. ',"broker":' .. quote(broker) .. ',"id":' .. id
    .. ',"addr":' .. quote(address) .. ',"incarnation":"' .. (instance.inc or '') .. '","first":false' .. flags
    .. ',"ha":' .. quote(instance.ha or '') .. ',"timeout_ms":' .. (instance.timeout or 'null'))
  appended = appended + 1
end

-- A seat was taken under the name of the cluster that its registration said; that may be another one than the group's.
local function tell_seats()
  for id, address in pairs(seats_of(group)) do
    local told = false
    for _, cluster in ipairs(clusters) do
      local instance = read_hash(key_of('instance', join_instance_name(cluster, address)))
      if instance.broker == broker and instance.id == id then
        tell_seat(cluster, id, address, instance)
        told = true
      end
    end
    if not told then
      tell_seat(group.cluster, id, address, {})
    end
  end
end

local function item_of(topic, packed)
  local perm, read, write, queue_flags, by_request = string.match(packed, '^(%-?%d+) (%-?%d+) (%-?%d+) (%-?%d+)(.*)$')
  return '{"t":' .. quote(topic) .. ',"r":' .. read .. ',"w":' .. write .. ',"p":' .. perm .. ',"f":' .. queue_flags .. '}',
    by_request ~= ''
end

local function tell_queues(cause, items, about)
  local chunks = {}
  for i, item in ipairs(items) do
    chunks[i] = { 1, item }
  end
  for _, part in ipairs(cut_into_parts(chunks, {})) do
    append_change('baseline-queues', by, owner .. about .. ',"queues":[' .. table.concat(part.queues, ',') .. '],"cause":"' .. cause
      .. '"')
    appended = appended + 1
  end
end

local about = ''
if place == '' then
  tell_seats()
  about = ',"clusters":' .. string_list(clusters) .. flags .. (group.cluster and '' or ',"group_removed":true')
  place = '0'
end
local page = redis.call('HSCAN', key_of('queues', broker), place, 'COUNT', TOPICS_PER_PART)
local brought, asked_for = {}, {}
for i = 1, #page[2], 2 do
  local item, by_request = item_of(page[2][i], page[2][i + 1])
  table.insert(by_request and asked_for or brought, item)
end
if #brought > 0 or about ~= '' then
  tell_queues('registration', brought, about)
end
if #asked_for > 0 then
  tell_queues('register-topic', asked_for, '')
end
return { DONE, current_version(), appended, page[1] == '0' and '' or page[1] }
