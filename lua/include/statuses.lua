--[[
How a script ended: the first value of its reply. `routebook.store.namespace.Status` is the same list; a test compares
the two.
]]
local DONE = 0         -- it changed something, and the history has an entry about it
local UNCHANGED = 1    -- a valid request that changed nothing
local UNKNOWN = 2      -- the request names something that is not in the route table
local STALE = 3        -- the route table has changed since the caller decided: read it again
local REFUSED = 4      -- the rules of the route table forbid it
local TURNED_DOWN = 5  -- another instance of the group has a higher state version
local FENCED = 6       -- the caller is not, or is no longer, the leader
local LIMITED = 7       -- a limit does not allow it; the third value of the reply is the setting of that limit
local HELD = 8         -- too many removals at once (include/brake): nothing was removed
