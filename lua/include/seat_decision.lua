--[[
What a registration amounts to, given what its group and its own live entry are. Looks, and writes nothing. Uses: keys,
groups.
]]
local function state_version(packed)
  return tonumber(string.match(packed or '', '^(%-?%d+)') or '0')
end

-- Whoever holds the seat now is alive and has the higher state version.
local function is_outranked(said, holder)
  local other = redis.call('HMGET', key_of('instance', join_instance_name(said.cluster, holder)), 'inc', 'dv')
  return other[1] and state_version(other[2]) > state_version(said.version)
end

-- Who publishes: the master, and of those that know acting masters the smallest id.
local function is_publisher(said, seats)
  if said.id == '0' then
    return true
  end
  seats[said.id] = said.address
  return said.acting ~= '' and smallest_id(seats) == said.id
end

local function decide_seat(said, group, instance)
  local seats, former_ids = seats_of(group), {}
  local lowers = tonumber(said.id) < tonumber(smallest_id(seats) or '0')
  for id, holder in pairs(seats) do
    if holder == said.address and id ~= said.id then  -- one address, one id
      former_ids[#former_ids + 1] = id
    end
  end
  for _, id in ipairs(former_ids) do
    seats[id] = nil
  end
  local holder = seats[said.id]
  local takes_seat = holder ~= said.address
  local turned_down = holder and takes_seat and is_outranked(said, holder)
  local refused = not holder and said.guarded
  local is_first = not holder
  local has_changed = instance.inc == nil or said.version == '' or instance.dv ~= said.version
  return {
    former_ids = former_ids,
    holder = holder,
    takes_seat = takes_seat,
    turned_down = turned_down,
    refused = refused,
    is_first = is_first,
    replaces = is_first or has_changed,
    publishes = is_publisher(said, seats),
    lowers = lowers,
  }
end
