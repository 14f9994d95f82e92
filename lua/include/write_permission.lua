--[[
Changes the permission of all topics of a group. Up to ENTRIES_AT_ONCE queue entries are changed by the script that
decides it. More are staged beforehand by copy_queues; `staged` then is `<name> <revision> <entries> <changed> <former
permissions>`, the last with commas. When the group keeps changing in between, the caller passes `-`, which allows any
number in one script.
Uses: keys, slices, staging.
]]
local PERM_WRITE, PERM_READ_WRITE = 2, 6
local ENTRIES_AT_ONCE = 5000
local MAX_FORMER_PERMISSIONS = 1000

local function without_write(perm)
  return bit.band(perm, bit.bnot(PERM_WRITE))
end

local function read_and_write()
  return PERM_READ_WRITE
end

-- Splits topics and packed queue data into those that change and those that do not. Most topics have one of a few
-- values, so each distinct value is worked out once. The third result lists the permissions that change.
local function work_out_permissions(flat, new_permission)
  local becomes, changed, unchanged, former, is_former = {}, {}, {}, {}, {}
  for i = 1, #flat, 2 do
    local packed = flat[i + 1]
    local after = becomes[packed]
    if not after then
      local perm, rest = string.match(packed, '^(%-?%d+)( .*)$')
      after = perm and new_permission(tonumber(perm)) .. rest or packed  -- an entry that another program wrote
      becomes[packed] = after
      if after ~= packed and not is_former[perm] and #former < MAX_FORMER_PERMISSIONS then
        is_former[perm] = true
        former[#former + 1] = perm
      end
    end
    local list = after ~= packed and changed or unchanged
    list[#list + 1] = flat[i]
    list[#list + 1] = after
  end
  table.sort(former)
  return changed, unchanged, former
end

-- Returns the name of the staged table, the number of its entries, how many of them differ, and the permissions that
-- these had; or nil when it may not be used.
local function read_staged(staged, revision)
  local name, staged_revision, entries, changed, former = string.match(staged, '^(%x+) (%d+) (%d+) (%d+) ([%d,-]*)$')
  if name and staged_revision == revision and has_staged(name, tonumber(entries), 0) then
    return name, tonumber(entries), tonumber(changed), former
  end
end

-- Whether the group has too many entries for one script, and they are not staged.
local function must_stage_permissions(broker, staged, revision)
  local is_large = redis.call('HLEN', key_of('queues', broker)) > ENTRIES_AT_ONCE
  return is_large and staged ~= '-' and not read_staged(staged, revision)
end

-- Returns how many entries there are, how many changed, and the field of the history with the permissions that they
-- had.
local function change_permissions(broker, new_permission, staged, revision)
  local name, entries, changed_count, staged_former = read_staged(staged, revision)
  if name then
    put_staged_in_place(name, broker)
    return entries, changed_count, ',"before":[' .. staged_former .. ']'
  end
  local key = key_of('queues', broker)
  local flat = redis.call('HGETALL', key)
  local changed, _, former = work_out_permissions(flat, new_permission)
  call_in_slices('HSET', key, changed, 1, #changed)
  return #flat / 2, #changed / 2, ',"before":[' .. table.concat(former, ',') .. ']'
end
