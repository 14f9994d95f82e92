--[[
The first touch of a store, and of one that lost its data: gives it an identity and a history when it has none.

KEYS[1]  meta

ARGV[1]  identity  random, taken when the store has none
ARGV[2]  history   random, taken when the store has none
ARGV[3]  schema    layout of the tables that the caller understands

reply    {status, version, ms, identity, history, schema of the store} DONE, UNCHANGED, REFUSED (its layout is newer)
]]
-- include: statuses
-- include: keys
-- include: version

local identity, history, schema = ARGV[1], ARGV[2], tonumber(ARGV[3])

local found = tonumber(redis.call('HGET', META, 'schema') or schema)
if found > schema then
  return { REFUSED, current_version(), '0', '', '', found }
end
local is_new = redis.call('SETNX', table_key('identity'), identity) == 1
redis.call('HSETNX', META, 'schema', schema)
redis.call('HSETNX', META, 'history', history)
local heads = redis.call('HMGET', META, 'ms', 'history')
return { is_new and DONE or UNCHANGED, current_version(), heads[1] or '0', redis.call('GET', table_key('identity')),
  heads[2], found }
