--[[
Closes sessions: the worker's last connections of these instances have ended. An instance that no other worker has a
session of is lost from now on. The worker investigates it; if the worker dies meanwhile, the leader does.

KEYS[1]   meta

ARGV[1]   worker
ARGV[2…]  cluster, address, incarnation (empty: the one of the session), stamp, ms since the connection ended

reply     {status, version, status, broker, id, incarnation, lost ms, source, 1 if established, …} UNCHANGED. Seven
          values per session that was checked; its status: DONE (lost), UNCHANGED (another worker has a session), STALE
          (another incarnation, or none). Stops after instances_per_call(): call again with the rest
]]
-- include: statuses
-- include: keys
-- include: types
-- include: version
-- include: clock
-- include: sessions
-- include: established
-- include: lost_connections

local worker = ARGV[1]
local FIRST_SESSION, SESSION_LENGTH, RESULT_LENGTH = 2, 5, 7
local ENDED_KEPT_MS = 600000

check_tables()
check_hash('sessions', worker)
check_sessions()
for at = FIRST_SESSION, #ARGV, SESSION_LENGTH do
  check_hash('instance', join_instance_name(ARGV[at], ARGV[at + 1]))
end
local now = server_ms()
local sessions, ended = key_of('sessions', worker), table_key('ended')

-- Returns the incarnation that the session was of.
local function end_session(instance_name, incarnation, stamp)
  local held_stamp, held_incarnation = string.match(redis.call('HGET', sessions, instance_name) or '', '^(%d+) (.*)$')
  if held_stamp and tonumber(held_stamp) <= stamp then
    redis.call('HDEL', sessions, instance_name)
    return incarnation == '' and held_incarnation or incarnation
  end
  return incarnation
end

local function close_session(instance_name, incarnation, stamp, ago)
  local ended_incarnation = end_session(instance_name, incarnation, stamp)
  local known = read_for_investigation(instance_name)
  if ended_incarnation == '' or known[1] ~= ended_incarnation then
    return STALE, '', '', '', '', '', ''
  end
  redis.call('ZADD', ended, ms_text(now), worker .. ' ' .. instance_name)
  if has_session(instance_name, ended_incarnation) then
    return UNCHANGED, '', '', '', '', '', ''
  end
  local lost_ms = ms_text(now - ago)
  redis.call('HSET', table_key('lost'), instance_name, ended_incarnation .. ' ' .. lost_ms .. ' ' .. worker)
  return DONE, values_of_lost_connection(instance_name, known, lost_ms)
end

redis.call('ZREMRANGEBYSCORE', ended, '-inf', ms_text(now - ENDED_KEPT_MS))
local results, limit = {}, instances_per_call()
for at = FIRST_SESSION, #ARGV, SESSION_LENGTH do
  if #results >= limit * RESULT_LENGTH then
    break
  end
  local instance_name = join_instance_name(ARGV[at], ARGV[at + 1])
  local incarnation, stamp, ago = ARGV[at + 2], tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4])
  for _, value in ipairs({ close_session(instance_name, incarnation, stamp, ago) }) do
    results[#results + 1] = value
  end
end
return { UNCHANGED, current_version(), unpack(results) }
