--[[
What a registration does to the queue table of its group, and how that is written into the history. Uses: keys, json,
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

-- What one entry of the history holds at most; its other fields fit into what is left of 256 KiB.
local ITEMS_PER_ENTRY, BYTES_PER_ENTRY = 1000, 200000

-- Chunks of queue items, then the hosts of mappings: small ones travel together.
local function cut_into_parts(chunks, hosts)
  local parts, count, bytes = { { queues = {}, hosts = {} } }, 0, 0
  local function place_for(items, size)
    if count > 0 and (count + items > ITEMS_PER_ENTRY or bytes + size > BYTES_PER_ENTRY) then
      parts[#parts + 1] = { queues = {}, hosts = {} }
      count, bytes = 0, 0
    end
    count, bytes = count + items, bytes + size + 1
    return parts[#parts]
  end
  for _, chunk in ipairs(chunks) do
    table.insert(place_for(chunk[1], #chunk[2]).queues, chunk[2])
  end
  for _, host in ipairs(hosts) do
    table.insert(place_for(1, #quote(host)).hosts, host)
  end
  return parts
end

-- Returns the version of the last entry. A seat that is taken has `queues` even if they are none.
local function append_parts(kind, by, fields, chunks, hosts)
  local parts, version = cut_into_parts(chunks, hosts)
  for i, part in ipairs(parts) do
    local numbering = #parts > 1 and ',"part":' .. (i - 1) .. ',"parts":' .. #parts or ''
    local mapped = #part.hosts > 0 and ',"mapped":' .. string_list(part.hosts) or ''
    local has_queues = #part.queues > 0 or kind == 'broker-registered'
    local queues = has_queues and ',"queues":[' .. table.concat(part.queues, ',') .. ']' or ''
    version = append_change(kind, by, fields .. numbering .. mapped .. queues)
  end
  return version
end
