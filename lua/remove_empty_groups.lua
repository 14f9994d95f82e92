--[[
Removes groups that have had no seat for a while: a registration that is refused, because it has one topic and its
broker is unknown, leaves its group without seats. Each is checked again: it must still have no seat and the same
revision, so a late decision removes nothing.

KEYS[1]   meta

ARGV[1]   by     JSON members `"actor":…,"source":…` for the history
ARGV[2]   lease  the leader's whole lease
ARGV[3…]  broker, revision

reply     {status, version, number removed} DONE, UNCHANGED, FENCED
]]
-- include: statuses
-- include: keys
-- include: types
-- include: version
-- include: hashes
-- include: json
-- include: clock
-- include: changes
-- include: leadership
-- include: integers
-- include: groups
-- include: slices
-- include: staging
-- include: write_permission
-- include: removal

local by, lease = ARGV[1], ARGV[2]
local FIRST_GROUP, GROUP_LENGTH = 3, 2
check_tables()
for at = FIRST_GROUP, #ARGV, GROUP_LENGTH do
  check_group('', ARGV[at])
end
if not is_leader(lease) then
  return { FENCED, current_version(), 0 }
end

local removed = 0
for at = FIRST_GROUP, #ARGV, GROUP_LENGTH do
  local broker, revision = ARGV[at], ARGV[at + 1]
  local group = read_hash(key_of('broker', broker))
  if group.cluster and (group.rev or '0') == revision and next(seats_of(group)) == nil then
    redis.call('UNLINK', key_of('queues', broker))
    redis.call('DEL', key_of('broker', broker))
    for _, cluster in ipairs(clusters_of(broker)) do
      remove_from_cluster(cluster, broker)
    end
    append_change('group-changed', by, group_fields(group.cluster, broker, {}))
    removed = removed + 1
  end
end
return { removed > 0 and DONE or UNCHANGED, current_version(), removed }
