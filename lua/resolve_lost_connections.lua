--[[
Ends the investigation of lost connections whose brokers are alive or cannot be judged: their deadlines decide.

KEYS[1]   meta

ARGV[1…]  cluster, address, incarnation, lost ms

reply     {status, version, number resolved} UNCHANGED
]]
-- include: statuses
-- include: keys
-- include: types
-- include: version
-- include: clock
-- include: established
-- include: lost_connections

local FIRST_LOSS, LOSS_LENGTH = 1, 4

check_tables()
local resolved = 0
for at = FIRST_LOSS, #ARGV, LOSS_LENGTH do
  if remove_lost_connection(join_instance_name(ARGV[at], ARGV[at + 1]), ARGV[at + 2], ARGV[at + 3]) then
    resolved = resolved + 1
  end
end
return { UNCHANGED, current_version(), resolved }
