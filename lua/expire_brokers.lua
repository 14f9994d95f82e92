--[[
Removes instances that a scan found due. Each is checked again: it must have the same incarnation and still be past
its deadline, so a late decision removes nothing. While a hold is in force, only instances that it does not concern are
removed. The batch stops after INSTANCES_PER_BATCH, or after
QUEUE_ENTRIES_PER_BATCH queue entries, since it blocks the store.

KEYS[1]   meta

ARGV[1]   by      JSON members `"actor":…,"source":…` for the history
ARGV[2]   lease   the leader's whole lease
ARGV[3…]  instance, incarnation, staged (see write_permission; usually empty)

reply     {status, version, number handled, notices, broker to stage, removed instance, …} DONE, UNCHANGED (none was
          due any more), FENCED
          notices: for each acting group that lost its smallest id: broker, the address that left, then id, address, …
          broker to stage: empty, or the next instance takes write permission from that group's topics, which have to
          be staged first
]]
-- include: statuses
-- include: keys
-- include: types
-- include: version
-- include: hashes
-- include: json
-- include: clock
-- include: changes
-- include: deadline_clock
-- include: leadership
-- include: integers
-- include: established
-- include: brake
-- include: groups
-- include: slices
-- include: staging
-- include: write_permission
-- include: removal
-- include: smallest_id

local by, lease = ARGV[1], ARGV[2]
local FIRST_INSTANCE, INSTANCE_LENGTH, INSTANCES_PER_BATCH, QUEUE_ENTRIES_PER_BATCH = 3, 3, 200, 10000
check_tables()
local last_instance = math.min(#ARGV, FIRST_INSTANCE + INSTANCES_PER_BATCH * INSTANCE_LENGTH - 1)
for at = FIRST_INSTANCE, last_instance, INSTANCE_LENGTH do
  check_instance(ARGV[at])
end
if not is_leader(lease) then
  return { FENCED, current_version(), 0, {}, '' }
end

local deadline_now = deadline_clock(by)
local deadlines = table_key('deadlines')
local released_to = tonumber(redis.call('HGET', table_key('expiry'), 'released_to') or '0')

local function is_due(incarnation, instance, deadline)
  return deadline and deadline < deadline_now and (instance.inc or '') == incarnation
end

local departed, to_stage = {}, ''

-- Returns the number of queue entries that were touched, and whether the instance was removed; nothing when its
-- group's queue entries have to be staged first.
local function expire(instance_name, incarnation, staged)
  local instance = read_hash(key_of('instance', instance_name))
  local deadline = tonumber(redis.call('ZSCORE', deadlines, instance_name) or nil)
  if not is_due(incarnation, instance, deadline) then
    return 0, false
  end
  if not instance.broker then
    redis.call('ZREM', deadlines, instance_name)
    redis.call('ZREM', table_key('heartbeats'), instance_name)
    redis.call('ZREM', table_key('new-instances'), instance_name)
    return 0, true
  end
  local cluster, address = string.match(instance_name, '^(.*)/([^/]*)$')
  if holds_no_seat(cluster, address, instance.broker) then
    remove_seatless_instance(cluster, instance.broker, instance_name, by)
    return 0, true
  end
  local counts = deadline > released_to and is_established(instance_name)
  if counts and is_hold_in_force() then
    return 0, false
  end
  local removal = { cluster = cluster, broker = instance.broker, address = address, cause = 'expired', lost_ms = '',
    staged = staged }
  if must_stage_removal(removal) then
    to_stage = instance.broker
    return
  end
  local touched, _, lost_smallest = remove_instance(removal, by)
  if lost_smallest then
    departed[instance.broker] = address
  end
  if counts then
    record_removal(instance_name, deadline_now)
  end
  return touched, true
end

local handled, touched_in_all, removed = 0, 0, {}
for at = FIRST_INSTANCE, #ARGV, INSTANCE_LENGTH do
  if handled >= INSTANCES_PER_BATCH or touched_in_all >= QUEUE_ENTRIES_PER_BATCH then
    break
  end
  local touched, is_removed = expire(ARGV[at], ARGV[at + 1], ARGV[at + 2])
  if not touched then
    break
  end
  touched_in_all = touched_in_all + touched
  handled = handled + 1
  if is_removed then
    removed[#removed + 1] = ARGV[at]
  end
end
-- Not HINCRBY, which fails if the value is no integer.
local function reduce(field, number)
  local value = tonumber(redis.call('HGET', table_key('expiry'), field) or '0') or 0
  redis.call('HSET', table_key('expiry'), field, ms_text(math.max(value - number, 0)))
end

if #removed > 0 then
  reduce('due', #removed)
  reduce('instances', #removed)
end
local status, notices = #removed > 0 and DONE or UNCHANGED, smallest_id_notices(departed)
return { status, current_version(), handled, notices, to_stage, unpack(removed) }
