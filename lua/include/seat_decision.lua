--[[
Decides what a registration does to its seat, given the group and the instance as they are stored. It writes nothing.

Decided here, and only here, because it must be true at the moment of the write: which seat the address takes or
leaves, whether another instance's higher state version turns it down, whether a single topic of an unknown broker is
refused, whether the registration may publish its topics, and whether its topics replace the ones that the group has.

Decided by the worker before the script runs (`service/routebook/registry/registration.py`), because it needs the
parsed table: which topics are new, differ or are to be dropped, and that a slave that acts as master publishes
read-only. The worker checks `may_publish` too, only to send no topics that this script would ignore. It decides on
the revision that it sends along, and the script refuses any other (STALE), so the two cannot disagree.
Uses: keys, integers, groups.
]]
local function state_version(packed)
  return string.match(packed or '', '^(%-?%d+)') or '0'
end

-- The instance that holds the seat is live and has the higher state version.
local function is_outranked(registration, holder)
  local other = redis.call('HMGET', key_of('instance', join_instance_name(registration.cluster, holder)), 'inc', 'dv')
  return other[1] and is_less(state_version(registration.version), state_version(other[2]))
end

-- The master may publish topics, and so may the smallest id among brokers that support acting masters.
local function may_publish(registration, seats)
  if registration.id == '0' then
    return true
  end
  seats[registration.id] = registration.address
  return registration.acting ~= '' and smallest_id(seats) == registration.id
end

local function decide_seat(registration, group, instance)
  local seats, former_ids = seats_of(group), {}
  local lowers_smallest_id = is_less(registration.id, smallest_id(seats) or '0')
  for id, holder in pairs(seats) do
    if holder == registration.address and id ~= registration.id then  -- an address holds one seat only
      former_ids[#former_ids + 1] = id
    end
  end
  for _, id in ipairs(former_ids) do
    seats[id] = nil
  end
  local holder = seats[registration.id]
  local takes_seat = holder ~= registration.address
  local has_new_version = instance.inc == nil or registration.version == '' or instance.dv ~= registration.version
  return {
    former_ids = former_ids,
    holder = holder,
    takes_seat = takes_seat,
    is_turned_down = holder and takes_seat and is_outranked(registration, holder),
    is_refused = not holder and registration.guarded,
    is_first = not holder,
    replaces_topics = not holder or has_new_version,
    may_publish = may_publish(registration, seats),
    lowers_smallest_id = lowers_smallest_id,
  }
end
