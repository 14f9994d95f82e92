--[[
Applies the topics and the static mappings of a registration to the tables of its group.
Uses: keys, slices, staging.
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
    mappings = {}, list = list }
  for number = 1, counts.mapping_hosts do
    local host = take(2)
    items.mappings[number] = take(2 * tonumber(list[host.to]))
    items.mappings[number].host = list[host.from]
  end
  items.chunks = { from = at, to = #list }
  return items
end

-- Returns the chunks of the history for what was applied: {number of items, the items as JSON, the former ones}.
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
  for at = chunks.from, chunks.to, 3 do
    local kind, number = string.match(list[at], '^(%a) (%d+)$')
    if kind ~= 'd' or replaces_topics then
      applied[#applied + 1] = { tonumber(number), list[at + 1], list[at + 2] }
    end
  end
  return applied
end

-- Returns the names of the host brokers whose mappings were written.
local function apply_mappings(items)
  local hosts = {}
  for number, of_host in ipairs(items.mappings) do
    call_in_slices('HSET', key_of('mapping', of_host.host), items.list, of_host.from, of_host.to)
    redis.call('SADD', table_key('mapped'), of_host.host)
    hosts[number] = of_host.host
  end
  return hosts
end
