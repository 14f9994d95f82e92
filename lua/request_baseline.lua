--[[
Somebody wants the whole table in the history: the leader writes it soon. Who asks while another wish waits, waits with it.

KEYS[1]  meta

ARGV[1]  why  operator or trimmed: the cause that the history will name

reply    {status, version, since} DONE, UNCHANGED (wanted already); since: ms when it was first wanted
]]
-- include: statuses
-- include: keys
-- include: version
-- include: clock

local why = ARGV[1]

local is_first = redis.call('HSETNX', META, 'baseline_requested', ms_text(server_ms()) .. ' ' .. why) == 1
local since = string.match(redis.call('HGET', META, 'baseline_requested'), '^(%d+) ')
return { is_first and DONE or UNCHANGED, current_version(), since }
