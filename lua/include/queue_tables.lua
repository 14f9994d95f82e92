--[[
Applies the topics and the static mappings of a registration to the tables of its group.
Uses: keys, json, slices, staging.
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

-- An entry of the history has room for this many bytes besides its own queue items.
local MAX_FORMER_ITEMS, MAX_FORMER_BYTES = 100, 30000

-- Returns the former queue items of the first topics that the registration changes or removes. It returns none for a
-- staged table, which has thousands of topics.
local function read_former_items(broker, items, replaces_topics)
  local topics, former, bytes = {}, {}, 0
  local function add(range, step)
    for at = range.from, math.min(range.to, range.from + (MAX_FORMER_ITEMS - #topics) * step - 1), step do
      topics[#topics + 1] = items.list[at]
    end
  end
  if replaces_topics then
    add(items.differing, 2)
  end
  add(items.dropped, 1)
  local packed = #topics > 0 and redis.call('HMGET', key_of('queues', broker), unpack(topics)) or {}
  for i, topic in ipairs(topics) do
    local item = packed[i] and item_of(topic, packed[i]) or ''
    bytes = bytes + #item + 1
    if bytes > MAX_FORMER_BYTES then
      break
    end
    if item ~= '' then
      former[#former + 1] = item
    end
  end
  return table.concat(former, ',')
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
  local hosts = {}
  for number, of_host in ipairs(items.mappings) do
    call_in_slices('HSET', key_of('mapping', of_host.host), items.list, of_host.from, of_host.to)
    redis.call('SADD', table_key('mapped'), of_host.host)
    hosts[number] = of_host.host
  end
  return hosts
end
