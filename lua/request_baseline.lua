--[[
Requests a baseline, which the leader then writes. A request while another one is waiting changes nothing, except that
an operator's replaces one after a loss, which may have to wait.

KEYS[1]  meta

ARGV[1]  cause  operator or trimmed, for the history

reply    {status, version, since} DONE, UNCHANGED (requested before). since: ms of the first request
]]
-- include: statuses
-- include: keys
-- include: types
-- include: version
-- include: clock

local cause = ARGV[1]

check_tables()
local waiting = redis.call('HGET', META, 'baseline_requested')
if waiting and (cause == 'trimmed' or not string.match(waiting, ' trimmed$')) then
  return { UNCHANGED, current_version(), string.match(waiting, '^(%d+) ') }
end
local since = ms_text(server_ms())
redis.call('HSET', META, 'baseline_requested', since .. ' ' .. cause)
return { DONE, current_version(), since }
