--[[
Applies the topics and the static mappings of a registration to the tables of its group. Uses: keys, slices, staging.
]]
-- Finds the lists among the arguments from `first` on, in the order of register_broker's header.
local function read_items(list, first, counts)
  local at = first
  local function take(number)
    local from = at
    at = at + number
    return { from = from, to = at - 1 }
  end
  local items = { new = take(2 * counts.new), differing = take(2 * counts.differing), dropped = take(counts.dropped),
    mappings = take(3 * counts.mappings), list = list }
  items.chunks = { from = at, to = #list }
  return items
end

-- Returns the chunks of the history for what was applied: {number of items, the items as JSON}.
local function apply_queues(broker, items, replaces_topics, staged)
  local key, list, chunks = key_of('queues', broker), items.list, items.chunks
  if staged ~= '' then
    put_staged_in_place(staged, broker)
    list = take_staged_chunks(staged)
    chunks = { from = 1, to = #list }
  else
    call_in_slices('HSET', key, items.list, items.new.from, items.new.to)
    if replaces_topics then
      call_in_slices('HSET', key, items.list, items.differing.from, items.differing.to)
    end
    call_in_slices('HDEL', key, items.list, items.dropped.from, items.dropped.to)
  end
  local applied = {}
  for at = chunks.from, chunks.to, 2 do
    local kind, number = string.match(list[at], '^(%a) (%d+)$')
    if kind ~= 'd' or replaces_topics then
      applied[#applied + 1] = { tonumber(number), list[at + 1] }
    end
  end
  return applied
end

-- Returns the names of the host brokers whose mappings were written.
local function apply_mappings(items)
  local hosts, of_host, list = {}, {}, items.list
  for at = items.mappings.from, items.mappings.to, 3 do
    local host = list[at]
    local written = of_host[host]
    if not written then
      written = {}
      of_host[host] = written
      hosts[#hosts + 1] = host
    end
    local count = #written
    written[count + 1], written[count + 2] = list[at + 1], list[at + 2]
  end
  for _, host in ipairs(hosts) do
    call_in_slices('HSET', key_of('mapping', host), of_host[host], 1, #of_host[host])
    redis.call('SADD', table_key('mapped'), host)
  end
  return hosts
end
