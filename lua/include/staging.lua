--[[
Staged queue tables. A table too large for one script is built by several (copy_queues, stage_queues) under the key
`staged:<name>`, which no reader uses; the last script then puts it in place in one step. An abandoned one expires.
Each script passes on how many entries the staged table has, so the next one notices when it expired meanwhile.
The revision of the group shows whether the group changed meanwhile. Uses: keys.
]]
local STAGED_FOR_MS = 60000

local function has_staged(name, entries)
  return redis.call('HLEN', key_of('staged', name)) == entries
end

-- Returns the number of entries.
local function keep_staged(name)
  redis.call('PEXPIRE', key_of('staged', name), STAGED_FOR_MS)
  return redis.call('HLEN', key_of('staged', name))
end

local function put_staged_in_place(name, broker)
  local staged, queues = key_of('staged', name), key_of('queues', broker)
  redis.call('UNLINK', queues)
  if redis.call('EXISTS', staged) == 1 then  -- not when every entry was removed
    redis.call('RENAME', staged, queues)
    redis.call('PERSIST', queues)
  end
end
