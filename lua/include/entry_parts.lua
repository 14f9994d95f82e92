--[[
Distributes queue items over entries of the history, since one entry has a limited size. Uses: json, changes.
]]
-- The limits of one entry of the history. The other fields of an entry fit into what these leave of 256 KiB.
local ITEMS_PER_ENTRY, BYTES_PER_ENTRY = 1000, 200000

-- Distributes chunks of queue items, then the hosts of mappings, over entries; small ones share an entry.
local function cut_into_parts(chunks, hosts)
  local parts, count, bytes = { { queues = {}, hosts = {} } }, 0, 0
  local function part_for(items, size)
    if count > 0 and (count + items > ITEMS_PER_ENTRY or bytes + size > BYTES_PER_ENTRY) then
      parts[#parts + 1] = { queues = {}, hosts = {} }
      count, bytes = 0, 0
    end
    count, bytes = count + items, bytes + size + 1
    return parts[#parts]
  end
  for _, chunk in ipairs(chunks) do
    table.insert(part_for(chunk[1], #chunk[2]).queues, chunk[2])
  end
  for _, host in ipairs(hosts) do
    table.insert(part_for(1, #quote(host)).hosts, host)
  end
  return parts
end

-- Returns the version of the last entry. A `broker-registered` entry has the field `queues` even if there are none.
local function append_parts(kind, by, fields, chunks, hosts)
  local parts, version = cut_into_parts(chunks, hosts)
  for i, part in ipairs(parts) do
    local numbering = #parts > 1 and ',"part":' .. (i - 1) .. ',"parts":' .. #parts or ''
    local mapped = #part.hosts > 0 and ',"mapped":' .. string_list(part.hosts) or ''
    local has_queues = #part.queues > 0 or kind == 'broker-registered'
    version = append_change(kind, by, fields .. numbering .. mapped, has_queues and table.concat(part.queues, ','))
  end
  return version
end
