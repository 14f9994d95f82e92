--[[
Finds the instances that are due, for the leader, decides whether removals are held (include/brake), and records the
scan for `status`. Instances whose deadline is not after `released_to` were released by an operator. The others count
for the brake, unless they are not established, or hold no seat because their address was replaced: nothing depends on
those, so they may always expire. While the workers are cut off the deadline clock is paused: each scan sets it back to
where it was.

KEYS[1]   meta

ARGV[1]   by      JSON members `"actor":…,"source":…` for the history
ARGV[2]   lease   the leader's whole lease
ARGV[3]   limit   number of instances in the reply, at most
ARGV[4]   percent, of the brake
ARGV[5]   minimum, of the brake
ARGV[6]   window, of the brake

reply     {status, version, deadline clock, number of instances, number due, number that counts for the brake,
           released_to, held since ms or empty, number removed within the window, 1 while the workers are cut off,
           1 if removals have to be held, instances whose removal is held (the first ones), instance, incarnation,
           deadline, 1 if it counts for the brake, …} DONE, FENCED
]]
-- include: statuses
-- include: keys
-- include: types
-- include: version
-- include: clock
-- include: changes
-- include: deadline_clock
-- include: leadership
-- include: cut_off
-- include: established
-- include: brake

local by, lease, limit = ARGV[1], ARGV[2], tonumber(ARGV[3])
local brake = { percent = tonumber(ARGV[4]), minimum = tonumber(ARGV[5]), window = tonumber(ARGV[6]) }
check_tables()
if not is_leader(lease) then
  return { FENCED, current_version() }
end

local deadline_now, server_now = deadline_clock(by)
local deadlines, expiry = table_key('deadlines'), table_key('expiry')

local function pause_clock(since)
  local paused_at = tonumber(redis.call('HGET', expiry, 'paused_at') or since)
  local advanced = math.max(deadline_now - paused_at, 0)
  local paused = tonumber(redis.call('HGET', META, 'paused_ms') or '0')
  redis.call('HSET', META, 'paused_ms', ms_text(paused + advanced))
  redis.call('HSET', expiry, 'paused_at', ms_text(paused_at))
  redis.call('HSETNX', expiry, 'paused_from_ms', ms_text(server_now - advanced))
  deadline_now = deadline_now - advanced
end

local function resume_clock()
  local from = redis.call('HGET', expiry, 'paused_from_ms')
  if from then
    redis.call('HDEL', expiry, 'paused_at', 'paused_from_ms')
    append_change('expiry-paused', by, '"from_ms":' .. from .. ',"to_ms":' .. ms_text(server_now))
  end
end

local cut_off_at = cut_off_since(deadline_now)
if cut_off_at then
  pause_clock(cut_off_at)
else
  resume_clock()
end

local upto = ms_text(deadline_now)
local state = redis.call('HMGET', expiry, 'released_to', 'held_since_ms')
local released_to = state[1] or '0'
local held = table_key('held')

-- An operator has released these: they are due now, whatever their deadlines were. Due is what is earlier than now, and
-- this scan may run in the millisecond of the release.
for _, instance_name in ipairs(redis.call('ZRANGEBYSCORE', held, '-inf', released_to, 'LIMIT', 0, limit)) do
  redis.call('ZADD', deadlines, 'XX', 'LT', ms_text(tonumber(released_to) - 1), instance_name)
  redis.call('ZREM', held, instance_name)
end

local instances = redis.call('ZCARD', deadlines)
local due = redis.call('ZCOUNT', deadlines, '-inf', '(' .. upto)
local counting = redis.call('ZCOUNT', deadlines, '(' .. released_to, '(' .. upto)
redis.call('HSET', expiry, 'last_scan_ms', ms_text(server_now), 'instances', instances, 'due', due)

local function holds_seat(instance_name, broker, id)
  local address = string.match(instance_name, '([^/]*)$')
  return broker and has_type(key_of('broker', broker), 'hash') and redis.call('HGET', key_of('broker', broker), 'addr:' .. id) == address
end

local listed = {}
local found = redis.call('ZRANGEBYSCORE', deadlines, '-inf', '(' .. upto, 'WITHSCORES', 'LIMIT', 0, limit)
for i = 1, #found, 2 do
  local instance_name, deadline = found[i], found[i + 1]
  local key = key_of('instance', instance_name)
  local known = has_type(key, 'hash') and redis.call('HMGET', key, 'inc', 'broker', 'id') or {}
  local counts = holds_seat(instance_name, known[2], known[3]) and is_established(instance_name)
  if tonumber(deadline) > tonumber(released_to) and (not counts or is_held(instance_name)) then
    counting = counting - 1  -- those whose removal is held are added below
  end
  listed[#listed + 1] = instance_name
  listed[#listed + 1] = known[1] or ''
  listed[#listed + 1] = deadline
  listed[#listed + 1] = counts and 1 or 0
end
counting = counting + redis.call('ZCOUNT', held, '(' .. released_to, '+inf')
local has_to_hold = are_too_many(brake, counting, deadline_now)
local removed = count_removals(brake.window, deadline_now)
local held_instances = redis.call('ZRANGE', held, 0, limit - 1)
return { DONE, current_version(), upto, instances, due, counting, released_to, state[2] or '', removed,
  cut_off_at and 1 or 0, has_to_hold and 1 or 0, held_instances, unpack(listed) }
