--[[
A batch of departures: a broker says so (104, HTTP), or its last connection was lost. Removal is by address, as Apache's is;
one that names an incarnation leaves a newer one alone (a broker's own word still removes what its address is seated in when
none is live any more), and a lost connection leaves an instance alone that another connection is held of. The batch stops after
DEPARTURES_PER_BATCH, or QUEUE_ENTRIES_PER_BATCH queue entries: the store is blocked meanwhile.

KEYS[1]   meta

ARGV[1…]  by (JSON members `"actor":…,"source":…` for the history), cause (unregistered, connection-lost or operator), lost ms
          (when the connection went; empty unless cause is connection-lost), carried (1: workers still show what the store has
          lost; say in the history that it is gone, even if it is not here), cluster, broker, id, address (empty: whoever sits
          in seat id), incarnation (empty: the current one)

reply     {status, version, statuses, notices} DONE, UNCHANGED (none was there)
          statuses: of each that was looked at: DONE, UNKNOWN, STALE (another incarnation, or still connected); call again
          with the others. notices: of each acting group that lost its smallest id: broker, address that left, id, address, …
]]
-- include: statuses
-- include: keys
-- include: version
-- include: hashes
-- include: json
-- include: clock
-- include: changes
-- include: sessions
-- include: losses
-- include: groups
-- include: slices
-- include: write_permission
-- include: removal
-- include: min_broker

local FIRST_REQUEST, REQUEST_LENGTH, QUEUE_ENTRIES_PER_BATCH = 1, 9, 10000
local DEPARTURES_PER_BATCH = math.min(100, members_per_call())

local touched_in_all, offline = 0, {}

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
  local is_over = incarnation ~= '' and not current
  if is_over and removal.cause ~= 'unregistered' then
    return UNKNOWN
  end
  if incarnation ~= '' and current and current ~= incarnation then
    return STALE
  end
  if removal.cause == 'connection-lost' and current then
    if has_session(instance_name, current) then
      return STALE
    end
    removal.id = nil
    if holds_no_seat(removal.cluster, removal.address, broker) then
      drop_alone(removal.cluster, broker, instance_name, by)
      return DONE
    end
  end
  local touched, changed, lost_smallest = remove_member(removal, by)
  touched_in_all = touched_in_all + touched
  if lost_smallest then
    offline[broker] = removal.address
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

local statuses, overall = {}, UNCHANGED
for at = FIRST_REQUEST, #ARGV, REQUEST_LENGTH do
  if #statuses >= DEPARTURES_PER_BATCH or touched_in_all >= QUEUE_ENTRIES_PER_BATCH then
    break
  end
  local by, cause, lost_ms, carried = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3] == '1'
  local cluster, broker, id, address, incarnation = unpack(ARGV, at + 4, at + 8)
  local removal = { cluster = cluster, broker = broker, id = id, address = address, cause = cause, lost_ms = lost_ms }
  local status = unregister(by, removal, carried, incarnation)
  if cause == 'connection-lost' then
    settle_loss(join_instance_name(cluster, address), incarnation)
  end
  statuses[#statuses + 1] = status
  overall = status == DONE and DONE or overall
end
return { overall, current_version(), statuses, departure_notices(offline) }
