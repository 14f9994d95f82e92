--[[
Ends a baseline. Whatever the history has from before `begin`, and the baseline did not name, no longer exists.

KEYS[1]  meta

ARGV[1]  by       JSON members `"actor":…,"source":…` for the history
ARGV[2]  lease    the leader's whole lease
ARGV[3]  begin    version of its first entry
ARGV[4]  entries  number of entries in between
ARGV[5]  request  the request that begin_baseline replied; it is fulfilled now, but a later one is not

reply    {status, version} DONE, FENCED
]]
-- include: statuses
-- include: keys
-- include: types
-- include: version
-- include: clock
-- include: changes
-- include: leadership

local by, lease, begin, entries, request = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
check_tables()
if not is_leader(lease) then
  return { FENCED, current_version() }
end
local version = append_change('baseline-end', by, '"begin":' .. begin .. ',"entries":' .. entries)
local history = redis.call('HGET', META, 'history') or ''
redis.call('HSET', META, 'baseline_ms', ms_text(server_ms()), 'baseline_history', history, 'baseline_begin', begin)
if redis.call('HGET', META, 'baseline_requested') == request then
  redis.call('HDEL', META, 'baseline_requested')
end
return { DONE, version }
