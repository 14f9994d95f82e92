--[[
What members of a group are told when its smallest id becomes another one (905): its seats, smallest id first, as id, address,
id, address, … Uses: hashes, keys, groups.
]]
local function seats_in_order(broker)
  local seats = seats_of(read_hash(key_of('broker', broker)))
  local ids = {}
  for id in pairs(seats) do
    ids[#ids + 1] = id
  end
  table.sort(ids, function(one, other) return tonumber(one) < tonumber(other) end)
  local listed = {}
  for _, id in ipairs(ids) do
    listed[#listed + 1] = id
    listed[#listed + 1] = seats[id]
  end
  return listed
end

-- offline: broker → address that left its smallest id, the last one of those; for groups that act without a master.
local function departure_notices(offline)
  local notices = {}
  for broker, address in pairs(offline) do
    if redis.call('HGET', key_of('broker', broker), 'acting') == '1' then
      notices[#notices + 1] = { broker, address, unpack(seats_in_order(broker)) }
    end
  end
  return notices
end
