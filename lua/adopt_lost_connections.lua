--[[
Gives the leader the lost connections that dead workers were investigating, and those that workers lost by dying
(remove_worker).

KEYS[1]  meta

ARGV[1]  by      JSON members `"actor":…,"source":…` for the history
ARGV[2]  lease   the leader's whole lease
ARGV[3]  worker  the leader

reply    {status, version, instance, broker, id, incarnation, lost ms, source, 1 if established, …} UNCHANGED, FENCED.
         At most about a thousand; the next call returns others
]]
-- include: statuses
-- include: keys
-- include: types
-- include: version
-- include: clock
-- include: changes
-- include: deadline_clock
-- include: leadership
-- include: established
-- include: lost_connections

local by, lease, worker = ARGV[1], ARGV[2], ARGV[3]
local INSTANCES_PER_CALL, VALUES_PER_INSTANCE = 1000, 7

check_tables()
if not is_leader(lease) then
  return { FENCED, current_version() }
end
local deadline_now, lost = deadline_clock(by), table_key('lost')

local function is_dead(other)
  local lease_end = redis.call('ZSCORE', table_key('workers'), other)
  return other ~= worker and not (lease_end and tonumber(lease_end) >= deadline_now)
end

local adopted = {}
local found = redis.call('HSCAN', lost, '0', 'COUNT', INSTANCES_PER_CALL)[2]
for i = 1, #found, 2 do
  check_hash('instance', found[i])
end
for i = 1, #found, 2 do
  local instance_name, incarnation, lost_ms, investigator = found[i], string.match(found[i + 1], '^(%S+) (%d+) (.*)$')
  if is_dead(investigator) then
    local known = read_for_investigation(instance_name)
    if known[1] ~= incarnation then
      redis.call('HDEL', lost, instance_name)
    elseif #adopted < INSTANCES_PER_CALL * VALUES_PER_INSTANCE then
      redis.call('HSET', lost, instance_name, incarnation .. ' ' .. lost_ms .. ' ' .. worker)
      for _, value in ipairs({ instance_name, values_of_lost_connection(instance_name, known, lost_ms) }) do
        adopted[#adopted + 1] = value
      end
    end
  end
end
return { UNCHANGED, current_version(), unpack(adopted) }
