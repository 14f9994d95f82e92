--[[
Key-values and settings are all back: slower workers need not go on.

KEYS[1]  meta

reply    {status, version} DONE, UNCHANGED (another worker was first)
]]
-- include: statuses
-- include: keys
-- include: version

return { redis.call('HSETNX', META, 'restored', '1') == 1 and DONE or UNCHANGED, current_version() }
