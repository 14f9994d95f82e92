--[[
Gives the history another name after a failover lost changes that a worker had seen, because their versions will be
used again. All workers notice the loss, and the first one renames.

KEYS[1]  meta

ARGV[1]  lost  name of the history that lost changes
ARGV[2]  new   random name

reply    {status, version, current name} DONE, UNCHANGED (it was renamed before)
]]
-- include: statuses
-- include: keys
-- include: types
-- include: version

local lost, new = ARGV[1], ARGV[2]

check_tables()
local history = redis.call('HGET', META, 'history') or ''
if history ~= lost then
  return { UNCHANGED, current_version(), history }
end
redis.call('HSET', META, 'history', new)
-- Key-values and settings that were lost have to be restored once more.
redis.call('HDEL', META, 'restored')
return { DONE, current_version(), new }
