--[[
What a script says of what it did. The same list in the same order is `routebook.store.namespace.Status`; a test compares the two.
]]
local DONE = 0         -- something changed, and the history says what
local UNCHANGED = 1    -- a legal request that found everything as it asked for
local UNKNOWN = 2      -- what it names is not in the route table
local STALE = 3        -- the route table is no longer what the caller decided on: look again
local REFUSED = 4      -- against the rules
local TURNED_DOWN = 5  -- another instance_name of the group has the higher state version
local FENCED = 6       -- the caller is not the leader (any more)
