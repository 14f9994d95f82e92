--[[
Requests a baseline, which the leader then writes. A request while another one is waiting changes nothing.

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
local is_first = redis.call('HSETNX', META, 'baseline_requested', ms_text(server_ms()) .. ' ' .. cause) == 1
local since = string.match(redis.call('HGET', META, 'baseline_requested'), '^(%d+) ')
return { is_first and DONE or UNCHANGED, current_version(), since }
