--[[
From here on the history says again what the whole table is: the leader goes through it part by part (append_baseline) until
end_baseline. Other changes may fall in between; each part is what the store holds at its own moment.

KEYS[1]  meta

ARGV[1]  by     JSON members `"actor":…,"source":…` for the history
ARGV[2]  lease  the leader's whole lease
ARGV[3]  cause  why now

reply    {status, version, wish} DONE, FENCED. The version is that of the beginning; wish: the one that this fulfils, or empty
]]
-- include: statuses
-- include: keys
-- include: version
-- include: clock
-- include: changes
-- include: leadership

local by, lease, cause = ARGV[1], ARGV[2], ARGV[3]
if not is_leader(lease) then
  return { FENCED, current_version(), '' }
end
local wish = redis.call('HGET', META, 'baseline_requested') or ''
return { DONE, append_change('baseline-begin', by, '"cause":"' .. cause .. '"'), wish }
