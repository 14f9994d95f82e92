--[[
The last connections of a worker that carried these instances are gone. An instance that no other worker is connected to
either is lost from now on: the worker looks into it, and the leader does if the worker dies meanwhile.

KEYS[1]   meta

ARGV[1]   worker
ARGV[2…]  cluster, address, incarnation (empty: whatever the session stands for), stamp, ms since the connection went

reply     {status, version, status of each looked at, broker, id, incarnation, lost ms, …} UNCHANGED; each: DONE (lost),
          UNCHANGED (connected elsewhere), STALE (another stay, or none). Stops after instances_per_call(): call again with
          the rest
]]
-- include: statuses
-- include: keys
-- include: version
-- include: clock
-- include: sessions
-- include: lost_connections

local worker = ARGV[1]
local FIRST_SESSION, SESSION_LENGTH = 2, 5
local ENDED_KEPT_MS = 600000

local now = server_ms()
local sessions, ended = key_of('sessions', worker), table_key('ended')

local function end_session(instance_name, incarnation, stamp)
  local held_stamp, held_for = string.match(redis.call('HGET', sessions, instance_name) or '', '^(%d+) (.*)$')
  if held_stamp and tonumber(held_stamp) <= stamp then
    redis.call('HDEL', sessions, instance_name)
    return incarnation == '' and held_for or incarnation
  end
  return incarnation
end

local function close_session(instance_name, incarnation, stamp, ago)
  local stay = end_session(instance_name, incarnation, stamp)
  local known = redis.call('HMGET', key_of('instance', instance_name), 'inc', 'broker', 'id')
  if stay == '' or known[1] ~= stay then
    return STALE, '', '', '', ''
  end
  redis.call('ZADD', ended, ms_text(now), worker .. ' ' .. instance_name)
  if has_session(instance_name, stay) then
    return UNCHANGED, '', '', '', ''
  end
  local lost_ms = ms_text(now - ago)
  redis.call('HSET', table_key('lost'), instance_name, stay .. ' ' .. lost_ms .. ' ' .. worker)
  return DONE, known[2], known[3], stay, lost_ms
end

redis.call('ZREMRANGEBYSCORE', ended, '-inf', ms_text(now - ENDED_KEPT_MS))
local told, limit = {}, instances_per_call()
for at = FIRST_SESSION, #ARGV, SESSION_LENGTH do
  if #told >= limit * SESSION_LENGTH then
    break
  end
  local instance_name = join_instance_name(ARGV[at], ARGV[at + 1])
  for _, value in ipairs({ close_session(instance_name, ARGV[at + 2], tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4])) }) do
    told[#told + 1] = value
  end
end
return { UNCHANGED, current_version(), unpack(told) }
