--[[
What a registration does to the queue table of its group, and how that is written into the history. Uses: keys,
changes, slices.
]]
-- Cuts the arguments from `first` on into the lists that register_broker's header names.
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

-- Returns the history's chunks of what was applied: {number, JSON items}.
local function apply_queues(broker, items, replaces, staged)
  local key = key_of('queues', broker)
  if staged ~= '' then
    redis.call('UNLINK', key)
    redis.call('RENAME', key_of('staged', staged), key)
    redis.call('PERSIST', key)
  else
    call_in_slices('HSET', key, items.list, items.new.from, items.new.to)
    if replaces then
      call_in_slices('HSET', key, items.list, items.differing.from, items.differing.to)
    end
    call_in_slices('HDEL', key, items.list, items.dropped.from, items.dropped.to)
  end
  local chunks = {}
  for at = items.chunks.from, items.chunks.to, 3 do
    if items.list[at] ~= 'd' or replaces then
      chunks[#chunks + 1] = { tonumber(items.list[at + 1]), items.list[at + 2] }
    end
  end
  return chunks
end

-- Returns the names of the host brokers whose mappings were written.
local function apply_mappings(items)
  local hosts, seen = {}, {}
  for at = items.mappings.from, items.mappings.to, 3 do
    local host, topic, mapping = items.list[at], items.list[at + 1], items.list[at + 2]
    redis.call('HSET', key_of('mapping', host), topic, mapping)
    redis.call('SADD', table_key('mapped'), host)
    if not seen[host] then
      seen[host] = true
      hosts[#hosts + 1] = host
    end
  end
  return hosts
end

-- Small chunks travel together; at most ITEMS_PER_ENTRY items an entry. Returns the version of the last entry.
local ITEMS_PER_ENTRY = 1000

local function append_parts(kind, by, fields, chunks)
  local parts, count = { {} }, 0
  for _, chunk in ipairs(chunks) do
    if count + chunk[1] > ITEMS_PER_ENTRY and count > 0 then
      parts[#parts + 1] = {}
      count = 0
    end
    count = count + chunk[1]
    table.insert(parts[#parts], chunk[2])
  end
  local version
  for i, part in ipairs(parts) do
    local queues = #part > 0 and ',"queues":[' .. table.concat(part, ',') .. ']' or ''
    local numbering = #parts > 1 and ',"part":' .. (i - 1) .. ',"parts":' .. #parts or ''
    version = append_change(kind, by, fields .. numbering .. queues)
  end
  return version
end
