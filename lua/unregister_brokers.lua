--[[
Unregisters a batch of instances: the broker asked for it (104, HTTP), an operator did, or its last connection was
lost. As in Apache's name server, an address loses all its seats in the group. A request with an incarnation leaves a
newer incarnation alone; a broker's own request still removes the seats of its address when no incarnation is live. A
lost connection leaves alone an instance that has another session, or had one since: its loss is not pending any more
(include/lost_connections). When too many brokers would be removed within a short
time, the removal is held, unless an operator asked for it (include/brake). The batch stops after REQUESTS_PER_BATCH, or after
QUEUE_ENTRIES_PER_BATCH queue entries, since it blocks the store.

KEYS[1]   meta

ARGV[1]   percent, of the brake
ARGV[2]   minimum, of the brake
ARGV[3]   window, of the brake
ARGV[4…]  by (JSON members `"actor":…,"source":…` for the history), cause (unregistered, connection-lost or operator),
          lost ms (when the connection was lost; empty for other causes), carried (1: workers still show what the
          store has lost, so append its removal even if it is not here), cluster, broker, id, address (empty: the
          address in seat id), incarnation (empty: the current one; `-`: the current one, unless it has a session),
          staged (see write_permission; usually empty)

reply     {status, version, statuses, notices, broker to stage, 1 if a hold began} DONE, UNCHANGED (nothing was removed)
          statuses: one per request that was handled: DONE, UNKNOWN, STALE (another incarnation, or connected since),
          HELD; call again with the others. notices: for each acting group that lost its smallest id: broker, the address
          that left, id, address, …
          broker to stage: empty, or the next request takes write permission from that group's topics, which have to
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
-- include: established
-- include: brake
-- include: sessions
-- include: lost_connections
-- include: integers
-- include: groups
-- include: slices
-- include: staging
-- include: write_permission
-- include: removal
-- include: smallest_id

local brake = { percent = tonumber(ARGV[1]), minimum = tonumber(ARGV[2]), window = tonumber(ARGV[3]) }
local FIRST_REQUEST, REQUEST_LENGTH, QUEUE_ENTRIES_PER_BATCH = 4, 10, 10000
local UNLESS_CONNECTED = '-'
local REQUESTS_PER_BATCH = math.min(100, instances_per_call())

check_tables()
check_sessions()
local last_request = math.min(#ARGV, FIRST_REQUEST + REQUESTS_PER_BATCH * REQUEST_LENGTH - 1)
for at = FIRST_REQUEST, last_request, REQUEST_LENGTH do
  local cluster, broker, address = ARGV[at + 4], ARGV[at + 5], ARGV[at + 7]
  check_group(cluster, broker)
  check_hash('instance', join_instance_name(cluster, address))
end
local deadline_now = deadline_clock(ARGV[FIRST_REQUEST])
local touched_in_all, departed, has_hold_begun = 0, {}, false

local function remove(by, removal, carried, id)
  local touched, changed, lost_smallest = remove_instance(removal, by)
  touched_in_all = touched_in_all + touched
  if lost_smallest then
    departed[removal.broker] = removal.address
  end
  if changed then
    return DONE
  end
  if carried then
    append_change('broker-removed', by, removed_fields(removal, id, {}, false))
    return DONE
  end
  return UNKNOWN
end

local function hold(by, instance_name, broker)
  hold_removal(instance_name, deadline_now)
  local _, has_begun = begin_hold(by, '[' .. quote(broker) .. ']')
  has_hold_begun = has_hold_begun or has_begun
  return HELD
end

-- Returns a status, or nil when queue entries have to be staged first.
local function unregister(by, removal, carried, incarnation)
  local broker, id = removal.broker, removal.id
  local by_seat = removal.address == ''
  if by_seat then
    removal.address = redis.call('HGET', key_of('broker', broker), 'addr:' .. id) or ''
  end
  local instance_name = join_instance_name(removal.cluster, removal.address)
  local current = redis.call('HGET', key_of('instance', instance_name), 'inc')
  if by_seat and not current then
    return UNKNOWN
  end
  if incarnation == UNLESS_CONNECTED then
    if current and has_session(instance_name, current) then
      return STALE
    end
    incarnation = ''
  end
  local is_over = incarnation ~= '' and not current
  if is_over and removal.cause ~= 'unregistered' then
    return UNKNOWN
  end
  if incarnation ~= '' and current and current ~= incarnation then
    return STALE
  end
  if removal.cause == 'connection-lost' and current then
    if has_session(instance_name, current) or not is_loss_pending(instance_name, current, removal.lost_ms) then
      return STALE
    end
    removal.id = nil
    if holds_no_seat(removal.cluster, removal.address, broker) then
      remove_seatless_instance(removal.cluster, broker, instance_name, by)
      return DONE
    end
  end
  local counts = current and removal.cause ~= 'operator' and is_established(instance_name)
    and not holds_no_seat(removal.cluster, removal.address, broker)
  if counts and must_hold(brake, deadline_now) then
    return hold(by, instance_name, broker)
  end
  if must_stage_removal(removal) then
    return
  end
  if counts then
    record_removal(instance_name, deadline_now)
  end
  return remove(by, removal, carried, id)
end

local statuses, overall, to_stage = {}, UNCHANGED, ''
for at = FIRST_REQUEST, #ARGV, REQUEST_LENGTH do
  if #statuses >= REQUESTS_PER_BATCH or touched_in_all >= QUEUE_ENTRIES_PER_BATCH then
    break
  end
  local by, cause, lost_ms, carried = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3] == '1'
  local cluster, broker, id, address, incarnation, staged = unpack(ARGV, at + 4, at + 9)
  local removal = { cluster = cluster, broker = broker, id = id, address = address, cause = cause, lost_ms = lost_ms,
    staged = staged }
  local status = unregister(by, removal, carried, incarnation)
  if not status then
    to_stage = broker
    break
  end
  if cause == 'connection-lost' then
    remove_lost_connection(join_instance_name(cluster, address), incarnation, lost_ms)
  end
  statuses[#statuses + 1] = status
  overall = status == DONE and DONE or overall
end
local notices, hold_began = smallest_id_notices(departed), has_hold_begun and 1 or 0
return { overall, current_version(), statuses, notices, to_stage, hold_began }
