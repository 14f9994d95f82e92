--[[
Appends the heartbeat gaps that a worker has counted to the stream `pulse`. Its ids have the form of those in the
history; its versions are its own. The stream is limited to a number of entries and to a number of bytes, estimated
from the mean size of an entry.

KEYS[1]  meta

ARGV[1]  worker     as JSON
ARGV[2]  span_ms    length of the time in which they were counted
ARGV[3]  rows       JSON list, one item per seat
ARGV[4]  max_bytes  size of the stream, about

reply    {status, version} DONE. version: of this stream
]]
-- include: statuses
-- include: keys
-- include: types
-- include: clock

local worker, span_ms, rows, max_bytes = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
local MAX_ENTRIES, SHARE_OF_NEWEST = 100000, 0.05

check_tables()
local now = server_ms()
local head = redis.call('HMGET', META, 'pulse_version', 'pulse_ms', 'pulse_entry_bytes')
local version = tonumber(head[1] or '0') + 1
local ms = ms_text(math.max(now, tonumber(head[2] or '0')))
local payload = '{"v":1,"kind":"gaps","worker":' .. worker .. ',"from_ms":' .. ms_text(now - span_ms)
  .. ',"to_ms":' .. ms_text(now) .. ',"rows":' .. rows .. '}'
local mean_before = tonumber(head[3] or #payload)
local mean = mean_before + SHARE_OF_NEWEST * (#payload - mean_before)
local entries = math.max(1, math.min(MAX_ENTRIES, math.floor(max_bytes / mean)))

redis.call('HSET', META, 'pulse_version', ms_text(version), 'pulse_ms', ms, 'pulse_entry_bytes', ms_text(mean))
redis.call('XADD', table_key('pulse'), 'MAXLEN', '~', entries, ms .. '-' .. ms_text(version), 'd', payload)
return { DONE, version }
