--[[
A worker's sign of life, once a second: its own lease, and the proof that somebody can hear brokers. It says what the store
is, so that a worker notices another one without asking more.

KEYS[1]  meta

ARGV[1]  by        JSON members `"actor":…,"source":…` for the history
ARGV[2]  worker
ARGV[3]  lease_ms
ARGV[4]  about     JSON: what `status` shows of this worker

reply    {status, version, ms, identity, history, 1 if the route table knew this worker} DONE. It does not know one that it was told
         of for the first time, nor one that was forgotten meanwhile, and whose sessions are forgotten with it
]]
-- include: statuses
-- include: keys
-- include: version
-- include: clock
-- include: changes
-- include: deadline_clock

local by, worker, lease_ms, about = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]

local deadline_now, server_now = deadline_clock(by)
redis.call('HSET', META, 'alive_ms', ms_text(server_now))
-- Leases run on the deadline clock too: after an outage nobody's has ended just because of it.
redis.call('ZADD', table_key('workers'), ms_text(deadline_now + lease_ms), worker)
local is_known = redis.call('HSET', table_key('workers:about'), worker, about) == 0
local heads = redis.call('HMGET', META, 'ms', 'history')
local identity = redis.call('GET', table_key('identity')) or ''
return { DONE, current_version(), heads[1] or '0', identity, heads[2] or '', is_known and 1 or 0 }
