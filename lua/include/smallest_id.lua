--[[
Collects what the brokers of a group are sent when its smallest id changes (request 905): its seats as id, address,
id, address, …, smallest id first. Uses: hashes, keys, integers, groups.
]]
local function seats_in_order(broker)
  local seats = seats_of(read_hash(key_of('broker', broker)))
  local ids = {}
  for id in pairs(seats) do
    ids[#ids + 1] = id
  end
  table.sort(ids, is_less)
  local listed = {}
  for _, id in ipairs(ids) do
    listed[#listed + 1] = id
    listed[#listed + 1] = seats[id]
  end
  return listed
end

-- `departed`: broker → the address that left its smallest id. Only acting groups are notified.
local function smallest_id_notices(departed)
  local notices = {}
  for broker, address in pairs(departed) do
    if redis.call('HGET', key_of('broker', broker), 'acting') == '1' then
      local notice = { broker, address }
      for _, part in ipairs(seats_in_order(broker)) do  -- `unpack` cannot pass more than about 8,000
        notice[#notice + 1] = part
      end
      notices[#notices + 1] = notice
    end
  end
  return notices
end
