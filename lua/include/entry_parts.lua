--[[
Distributes queue items over entries of the history, since one entry has a limited size. Uses: json, changes.
]]
-- The limits of one entry of the history. The other fields of an entry fit into what these leave of 256 KiB.
local ITEMS_PER_ENTRY, BYTES_PER_ENTRY = 1000, 200000

-- Distributes chunks of queue items, then the hosts of mappings, over entries; small ones share an entry.
-- A chunk is {number of items, items, former items of the same topics or empty}.
local function cut_into_parts(chunks, hosts)
  local parts, count, bytes = { { queues = {}, former = {}, hosts = {} } }, 0, 0
  local function part_for(items, size)
    if count > 0 and (count + items > ITEMS_PER_ENTRY or bytes + size > BYTES_PER_ENTRY) then
      parts[#parts + 1] = { queues = {}, former = {}, hosts = {} }
      count, bytes = 0, 0
    end
    count, bytes = count + items, bytes + size + 1
    return parts[#parts]
  end
  for _, chunk in ipairs(chunks) do
    local part = part_for(chunk[1], #chunk[2] + #chunk[3])
    table.insert(part.queues, chunk[2])
    if chunk[3] ~= '' then
      table.insert(part.former, chunk[3])
    end
  end
  for _, host in ipairs(hosts) do
    table.insert(part_for(1, #quote(host)).hosts, host)
  end
  return parts
end

-- Most parts have one chunk, which is not copied.
local function join(chunks)
  return #chunks == 1 and chunks[1] or table.concat(chunks, ',')
end

-- Returns the version of the last entry. A `broker-registered` entry has the field `queues` even if there are none.
-- `before`: former values of fields, as JSON members; each part adds those of its own topics.
local function append_parts(kind, by, fields, before, chunks, hosts)
  local parts, version = cut_into_parts(chunks, hosts)
  for i, part in ipairs(parts) do
    local numbering = #parts > 1 and ',"part":' .. (i - 1) .. ',"parts":' .. #parts or ''
    local mapped = #part.hosts > 0 and ',"mapped":' .. string_list(part.hosts) or ''
    local has_queues = #part.queues > 0 or kind == 'broker-registered'
    local queues, former = has_queues and join(part.queues), join(part.former)
    version = append_change(kind, by, fields .. numbering .. mapped, queues, before, former)
  end
  return version
end
