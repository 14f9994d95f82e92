--[[
Renews a worker's lease, once a second. While any worker does so, heartbeats can be received and the deadline clock
runs. The reply has the identity and the history, so that the worker notices when the store lost its data.

KEYS[1]  meta

ARGV[1]  by        JSON members `"actor":…,"source":…` for the history
ARGV[2]  worker
ARGV[3]  lease_ms  until it ends unless it is renewed again
ARGV[4]  about     JSON: what `status` shows of this worker

reply    {status, version, ms, identity, history, is known, is held} DONE. is known: 0 for a new worker, and for one
         that was removed meanwhile together with its sessions; else 1. is held: 1 while removals are held
]]
-- include: statuses
-- include: keys
-- include: types
-- include: version
-- include: clock
-- include: changes
-- include: deadline_clock

local by, worker, lease_ms, about = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]

check_tables()
local deadline_now, server_now = deadline_clock(by)
redis.call('HSET', META, 'alive_ms', ms_text(server_now))
-- Leases use the deadline clock too, so an outage does not end them.
redis.call('ZADD', table_key('workers'), ms_text(deadline_now + lease_ms), worker)
local is_known = redis.call('HSET', table_key('workers:about'), worker, about) == 0
local head = redis.call('HMGET', META, 'ms', 'history')
local identity = redis.call('GET', table_key('identity')) or ''
local is_held = redis.call('HEXISTS', table_key('expiry'), 'held_since_ms')
return { DONE, current_version(), head[1] or '0', identity, head[2] or '', is_known and 1 or 0, is_held }
