--[[
Staged changes. A change too large for one script is prepared by several (copy_queues, stage_queues): `staged:<name>` is
the new queue table, `staged-changes:<name>` has the queue items for the history, in chunks. No reader uses these keys;
the last script puts the table in place and appends the items in one step. Abandoned keys expire. Each script passes on
how many entries and chunks there are, so the next one notices when they expired meanwhile. The revision of the group
shows whether the group changed meanwhile. Uses: keys.
]]
local STAGED_FOR_MS = 60000

-- A chunk has three fields in the hash: `kind:<number>`, `items:<number>` and `former:<number>`.
local function count_chunks(name)
  return redis.call('HLEN', key_of('staged-changes', name)) / 3
end

local function has_staged(name, entries, chunks)
  return redis.call('HLEN', key_of('staged', name)) == entries and count_chunks(name) == chunks
end

-- Returns the number of entries, and of chunks.
local function keep_staged(name)
  redis.call('PEXPIRE', key_of('staged', name), STAGED_FOR_MS)
  redis.call('PEXPIRE', key_of('staged-changes', name), STAGED_FOR_MS)
  return redis.call('HLEN', key_of('staged', name)), count_chunks(name)
end

local function put_staged_in_place(name, broker)
  local staged, queues = key_of('staged', name), key_of('queues', broker)
  redis.call('UNLINK', queues)
  if redis.call('EXISTS', staged) == 1 then  -- not when every entry was removed
    redis.call('RENAME', staged, queues)
    redis.call('PERSIST', queues)
  end
end

-- Returns the chunks as kind and number of items, items, former items, kind and number of items, …
local function take_staged_chunks(name)
  local key, chunks = key_of('staged-changes', name), {}
  for number = 1, count_chunks(name) do
    for _, field in ipairs(redis.call('HMGET', key, 'kind:' .. number, 'items:' .. number, 'former:' .. number)) do
      chunks[#chunks + 1] = field
    end
  end
  redis.call('UNLINK', key)
  return chunks
end
