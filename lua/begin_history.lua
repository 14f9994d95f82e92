--[[
A failover lost changes that a worker has seen: versions will be used a second time, so the history needs another name. Once:
who comes second finds it renamed.

KEYS[1]  meta

ARGV[1]  lost  name of the history that lost its tail
ARGV[2]  new   random

reply    {status, version, history in force} DONE, UNCHANGED (renamed before)
]]
-- include: statuses
-- include: keys
-- include: version

local lost, new = ARGV[1], ARGV[2]

local history = redis.call('HGET', META, 'history') or ''
if history ~= lost then
  return { UNCHANGED, current_version(), history }
end
redis.call('HSET', META, 'history', new)
-- What this loss took has not been written back yet.
redis.call('HDEL', META, 'restored')
return { DONE, current_version(), new }
