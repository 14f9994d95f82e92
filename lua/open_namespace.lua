--[[
Opens a namespace: gives it an identity, a history and a layout if it has none, as when it is new or the store lost
its data.

KEYS[1]  meta

ARGV[1]  identity  random, used if the namespace has none
ARGV[2]  history   random, used if the namespace has none
ARGV[3]  schema    layout that the caller supports

reply    {status, version, ms, identity, history, schema} DONE, UNCHANGED, REFUSED (its layout is newer). schema: the
         layout that it has; an older one has to be migrated (migrate_namespace)
]]
-- include: statuses
-- include: keys
-- include: types
-- include: version

local identity, history, schema = ARGV[1], ARGV[2], tonumber(ARGV[3])

check_tables()
local found = tonumber(redis.call('HGET', META, 'schema') or schema)
if found > schema then
  return { REFUSED, current_version(), '0', '', '', found }
end
local is_new = redis.call('SETNX', table_key('identity'), identity) == 1
redis.call('HSETNX', META, 'schema', schema)
redis.call('HSETNX', META, 'history', history)
local head = redis.call('HMGET', META, 'ms', 'history')
return { is_new and DONE or UNCHANGED, current_version(), head[1] or '0', redis.call('GET', table_key('identity')),
  head[2], found }
