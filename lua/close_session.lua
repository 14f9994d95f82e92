--[[
One connection of a broker less on this worker.

KEYS[1]  meta

ARGV[1]  worker
ARGV[2]  cluster
ARGV[3]  address
ARGV[4]  incarnation  that the connection stood for

reply    {status, version, 1 if any worker still holds a connection of it} DONE, STALE (it stood for another incarnation)
]]
-- include: statuses
-- include: keys
-- include: version
-- include: sessions

local worker, cluster, address, incarnation = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local member, key = member_of(cluster, address), key_of('sessions', worker)
local count, held_for = string.match(redis.call('HGET', key, member) or '', '^(%d+) (.*)$')
if held_for ~= incarnation then
  return { STALE, current_version(), has_session(member, incarnation) and 1 or 0 }
end
if tonumber(count) <= 1 then
  redis.call('HDEL', key, member)
else
  redis.call('HSET', key, member, (count - 1) .. ' ' .. incarnation)
end
return { DONE, current_version(), has_session(member, incarnation) and 1 or 0 }
