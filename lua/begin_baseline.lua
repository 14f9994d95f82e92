--[[
Begins a baseline: the leader then appends the whole route table part by part (append_baseline), and ends with
end_baseline. Other changes may come in between; each part is what the store has at that moment.

KEYS[1]  meta

ARGV[1]  by     JSON members `"actor":…,"source":…` for the history
ARGV[2]  lease  the leader's whole lease
ARGV[3]  cause  daily, new-history, trimmed or operator

reply    {status, version, request} DONE, FENCED. version: of this entry. request: the one that this baseline fulfils,
         or empty
]]
-- include: statuses
-- include: keys
-- include: types
-- include: version
-- include: clock
-- include: changes
-- include: leadership

local by, lease, cause = ARGV[1], ARGV[2], ARGV[3]
check_tables()
if not is_leader(lease) then
  return { FENCED, current_version(), '' }
end
local request = redis.call('HGET', META, 'baseline_requested') or ''
return { DONE, append_change('baseline-begin', by, '"cause":"' .. cause .. '"'), request }
