--[[
Notes that all key-values and settings are restored, so that slower workers stop restoring them.

KEYS[1]  meta

reply    {status, version} DONE, UNCHANGED (another worker noted it before)
]]
-- include: statuses
-- include: keys
-- include: types
-- include: version

check_tables()
return { redis.call('HSETNX', META, 'restored', '1') == 1 and DONE or UNCHANGED, current_version() }
