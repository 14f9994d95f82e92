--[[
A batch of departures: a broker says so (104, HTTP), or its last connection was lost. Removal is by address, as Apache's is;
one that names an incarnation removes only that one, and a lost connection only an instance that no worker holds another
connection of.

KEYS[1]   meta

ARGV[1]   by        JSON members `"actor":…,"source":…` for the history
ARGV[2]   cause     unregistered, connection-lost or operator
ARGV[3]   lost_ms   when the connection went; empty unless cause is connection-lost
ARGV[4]   carried   1: workers still show what the store has lost; say in the history that it is gone, even if it is not here
ARGV[5…]  cluster, broker, id, address (empty: whoever sits in seat id), incarnation (empty: the current one)

reply     {status, version, status of each}
          DONE, UNCHANGED (none was there); each: DONE, UNKNOWN, STALE (another incarnation, or still connected)
]]
-- include: statuses
-- include: keys
-- include: version
-- include: hashes
-- include: json
-- include: clock
-- include: changes
-- include: sessions
-- include: groups
-- include: slices
-- include: write_permission
-- include: removal

local by, cause, lost_ms, carried = ARGV[1], ARGV[2], ARGV[3], ARGV[4] == '1'
local FIRST_REQUEST, REQUEST_LENGTH = 5, 5

local function unregister(cluster, broker, id, address, incarnation)
  local by_seat = address == ''
  if by_seat then
    address = redis.call('HGET', key_of('broker', broker), 'addr:' .. id) or ''
  end
  local member = member_of(cluster, address)
  local current = redis.call('HGET', key_of('instance', member), 'inc')
  if by_seat and not current then
    return UNKNOWN
  end
  if incarnation ~= '' and current ~= incarnation then
    return current and STALE or UNKNOWN
  end
  if cause == 'connection-lost' and current and has_session(member, current) then
    return STALE
  end
  local removal = { cluster = cluster, broker = broker, address = address, cause = cause, lost_ms = lost_ms }
  local _, changed = remove_member(removal, by)
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
  local status = unregister(ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4])
  statuses[#statuses + 1] = status
  overall = status == DONE and DONE or overall
end
return { overall, current_version(), statuses }
