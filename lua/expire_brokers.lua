--[[
Removes the members that a scan found due. Each is compared once more: the same incarnation, still past its deadline; so a
decision that came late removes nothing. The batch stops after MEMBERS_PER_BATCH members, or QUEUE_ENTRIES_PER_BATCH queue
entries: the store is blocked meanwhile.

KEYS[1]   meta

ARGV[1]   by      JSON members `"actor":…,"source":…` for the history
ARGV[2]   lease   the leader's whole lease
ARGV[3…]  instance_name, incarnation

reply     {status, version, members looked at, notices, removed instance_name, …} DONE, UNCHANGED (none was due any more), FENCED.
          notices: of each acting group that lost its smallest id: broker, address that left, then id, address, …
]]
-- include: statuses
-- include: keys
-- include: version
-- include: hashes
-- include: json
-- include: clock
-- include: changes
-- include: deadline_clock
-- include: leadership
-- include: groups
-- include: slices
-- include: write_permission
-- include: removal
-- include: min_broker

local by, lease = ARGV[1], ARGV[2]
local FIRST_MEMBER, MEMBERS_PER_BATCH, QUEUE_ENTRIES_PER_BATCH = 3, 200, 10000
if not leads(lease) then
  return { FENCED, current_version(), 0, {} }
end

local deadline_now = deadline_clock(by)
local deadlines = table_key('deadlines')

local released_to = tonumber(redis.call('HGET', table_key('expiry'), 'released_to') or '0')

local function is_due(instance_name, incarnation, instance, deadline)
  return deadline and deadline < deadline_now and (instance.inc or '') == incarnation
end

local offline = {}

local function expire(instance_name, incarnation)
  local instance = read_hash(key_of('instance', instance_name))
  local deadline = tonumber(redis.call('ZSCORE', deadlines, instance_name) or nil)
  if not is_due(instance_name, incarnation, instance, deadline) then
    return 0, false
  end
  if not instance.broker then
    redis.call('ZREM', deadlines, instance_name)
    redis.call('ZREM', table_key('heartbeats'), instance_name)
    return 0, true
  end
  local cluster, address = string.match(instance_name, '^(.*)/([^/]*)$')
  if holds_no_seat(cluster, address, instance.broker) then
    drop_alone(cluster, instance.broker, instance_name, by)
    return 0, true
  end
  local touched, _, lost_smallest = remove_member({ cluster = cluster, broker = instance.broker, address = address, cause = 'expired',
    lost_ms = '' }, by)
  if lost_smallest then
    offline[instance.broker] = address
  end
  if deadline > released_to then  -- those an operator let go are no sign of trouble
    redis.call('ZADD', table_key('expired'), ms_text(deadline_now), instance_name)
  end
  return touched, true
end

local looked_at, touched_in_all, removed = 0, 0, {}
for at = FIRST_MEMBER, #ARGV, 2 do
  if looked_at >= MEMBERS_PER_BATCH or touched_in_all >= QUEUE_ENTRIES_PER_BATCH then
    break
  end
  local touched, gone = expire(ARGV[at], ARGV[at + 1])
  touched_in_all = touched_in_all + touched
  looked_at = looked_at + 1
  if gone then
    removed[#removed + 1] = ARGV[at]
  end
end
if #removed > 0 then  -- Lua has a minus zero, and Redis 7.0 takes it for no integer
  redis.call('HINCRBY', table_key('expiry'), 'due', -#removed)
  redis.call('HINCRBY', table_key('expiry'), 'instances', -#removed)
end
return { #removed > 0 and DONE or UNCHANGED, current_version(), looked_at, departure_notices(offline), unpack(removed) }
