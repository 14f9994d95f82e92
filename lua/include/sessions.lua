--[[
Who is connected where: `sessions:<worker>` holds member → "<stamp> <incarnation>". The stamp is the worker's own count of its
openings, so that a closing which is overtaken by a newer opening closes nothing, and repeating either is harmless. `lost`
holds those whose last session ended, until that is settled: member → "<incarnation> <lost ms> <worker that looks into it>".
Uses: keys, clock.
]]
local FIRST_LEASE_MS = 10000  -- of a worker whose own sign of life comes a moment later

local function open_session(worker, stamp, member, incarnation, deadline_now)
  local key = key_of('sessions', worker)
  local held = string.match(redis.call('HGET', key, member) or '', '^(%d+) ')
  local newest = math.max(tonumber(stamp), tonumber(held or '0'))
  redis.call('HSET', key, member, ms_text(newest) .. ' ' .. incarnation)
  redis.call('ZADD', table_key('workers'), 'NX', ms_text(deadline_now + FIRST_LEASE_MS), worker)
  redis.call('HDEL', table_key('lost'), member)
end

local function has_session(member, incarnation)
  for _, worker in ipairs(redis.call('ZRANGE', table_key('workers'), 0, -1)) do
    local held = redis.call('HGET', key_of('sessions', worker), member)
    if held and string.match(held, '^%d+ (.*)$') == incarnation then
      return true
    end
  end
  return false
end
