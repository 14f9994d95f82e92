--[[
One connection more that a broker was heard on, when neither a registration nor a touch said so.

KEYS[1]  meta

ARGV[1]  worker
ARGV[2]  cluster
ARGV[3]  address

reply    {status, version, incarnation} DONE, UNKNOWN
]]
-- include: statuses
-- include: keys
-- include: version
-- include: sessions

local worker, cluster, address = ARGV[1], ARGV[2], ARGV[3]

local member = member_of(cluster, address)
local incarnation = redis.call('HGET', key_of('instance', member), 'inc')
if not incarnation then
  return { UNKNOWN, current_version(), '' }
end
open_session(worker, member, incarnation)
return { DONE, current_version(), incarnation }
