--[[
An instance of a group announces itself, with (some of) its topics: all effects in one step (Apache's registerBroker, under its
lock). The worker has worked out the difference between the registration and the queues it knows, and says on which state of
the group (`base`) that rests; if the group has moved on, nothing is done and the worker starts over.

KEYS[1]   meta

ARGV[1]   by          JSON members `"actor":…,"source":…` for the history
ARGV[2]   cluster
ARGV[3]   broker      name of the group
ARGV[4]   id          0 is the master
ARGV[5]   address     host:port
ARGV[6]   ha          replication address, may be empty
ARGV[7]   zone        empty for none
ARGV[8]   acting      empty: an old broker that does not say; 0 or 1
ARGV[9]   timeout     ms without a sign of life until it expires
ARGV[10]  version     data version, packed; empty counts as changed every time
ARGV[11]  incarnation 64 random bits, used when the address takes a seat it did not have
ARGV[12]  digest      of the registration: what a touch will be compared with
ARGV[13]  filters     JSON list; `[]` removes the stored one, empty leaves it alone
ARGV[14]  base        `<history>:<revision of the group>`
ARGV[15]  guarded     1: one topic from an instance not yet known is refused
ARGV[16]  staged      name of a queue table prepared by stage_queues, else empty
ARGV[17]  staged_all  1: the staged table holds replacements of known entries too, right only when the version changed
ARGV[18]  worker      whose connection this came over, opening a session; empty for none
ARGV[19]  stamp       of that opening
ARGV[20]  new         number of topics the base does not have
ARGV[21]  differing   number of topics the base has with other values
ARGV[22]  dropped     number of topics to remove (deleteTopicWithBrokerRegistration, replace)
ARGV[23]  mappings    number of static mappings that differ
ARGV[24…] topic, packed queue data (new) · topic, packed queue data (differing) · topic (dropped) ·
          host broker, topic, mapping as JSON · then ready-made queue items for the history, in chunks of at most 1,000:
          kind of chunk (n, d or x, for new, differing, dropped), number of items, JSON items

reply     {status, version, incarnation, master address, master HA address, gap, seats}
          gap: ms since it was heard last (-1: never)
          seats: id, address, … of the group, smallest id first, when this one's id lowers the smallest; else none
          DONE, UNCHANGED, STALE (base, assumption or staged table no longer there), REFUSED, TURNED_DOWN
]]
-- include: statuses
-- include: keys
-- include: version
-- include: hashes
-- include: json
-- include: clock
-- include: changes
-- include: deadline_clock
-- include: sessions
-- include: heartbeat
-- include: groups
-- include: slices
-- include: write_permission
-- include: removal
-- include: queue_tables
-- include: master_of
-- include: seat_decision
-- include: registration
-- include: min_broker

local by, cluster, broker, id, address = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local ha, zone, acting, timeout, version = ARGV[6], ARGV[7], ARGV[8], ARGV[9], ARGV[10]
local incarnation, digest, filters, base = ARGV[11], ARGV[12], ARGV[13], ARGV[14]
local guarded, staged, staged_all, worker, stamp = ARGV[15] == '1', ARGV[16], ARGV[17] == '1', ARGV[18], ARGV[19]
local counts = { new = tonumber(ARGV[20]), differing = tonumber(ARGV[21]), dropped = tonumber(ARGV[22]),
  mappings = tonumber(ARGV[23]) }
local FIRST_ITEM = 24

local said = { by = by, cluster = cluster, broker = broker, id = id, address = address, ha = ha, zone = zone,
  acting = acting, timeout = timeout, version = version, digest = digest, filters = filters, guarded = guarded }
local instance_name = join_instance_name(cluster, address)
local group = read_hash(key_of('broker', broker))
local instance = read_hash(key_of('instance', instance_name))

local history = redis.call('HGET', META, 'history') or ''
local is_prepared = staged == '' or redis.call('EXISTS', key_of('staged', staged)) == 1
if base ~= history .. ':' .. (group.rev or '0') or not is_prepared then
  return { STALE, current_version(), '', '', '', -1 }
end
local decision = decide_seat(said, group, instance)
local is_accepted = not decision.turned_down and not decision.refused
if is_accepted and staged_all and decision.publishes and not decision.replaces then
  return { STALE, current_version(), '', '', '', -1 }
end

local group_marked = mark_group(said, group)
if not is_accepted then
  decline(said, decision, instance, group_marked)
  return { decision.turned_down and TURNED_DOWN or REFUSED, current_version(), '', '', '', -1 }
end
take_seat(said, decision)
if not decision.takes_seat and instance.inc then
  incarnation = instance.inc
end

local items = read_items(ARGV, FIRST_ITEM, counts)
local queue_chunks, mapped = {}, {}
if decision.publishes then
  queue_chunks = apply_queues(broker, items, decision.replaces, staged)
  if decision.replaces then
    mapped = apply_mappings(items)
  end
elseif staged ~= '' then
  redis.call('UNLINK', key_of('staged', staged))
end

local filters_changed = store_filters(said, instance_name)
local group_changed = group_marked or decision.takes_seat or #decision.former_ids > 0 or #queue_chunks > 0 or #mapped > 0
local instance_changed = instance.inc ~= incarnation or instance.broker ~= broker or instance.id ~= id
  or instance.dv ~= version or instance.ha ~= ha or instance.timeout ~= timeout
local has_changed = group_changed or instance_changed or filters_changed
local deadline_now, server_now = deadline_clock(by)
local gap = mark_heard(instance_name, timeout, deadline_now, server_now)
if worker ~= '' then
  open_session(worker, stamp, instance_name, incarnation, deadline_now)
end

local table_version, revision = current_version(), group.rev or '0'
if has_changed then
  local kind = decision.takes_seat and 'broker-registered' or 'broker-changed'
  table_version = append_parts(kind, by, seat_fields(said, decision, incarnation, filters_changed), queue_chunks, mapped)
end
if group_changed then
  revision = tostring(table_version)
  raise_revisions(said, mapped, revision)
end
redis.call('HSET', key_of('instance', instance_name), 'broker', broker, 'id', id, 'inc', incarnation, 'timeout', timeout,
  'ha', ha, 'dv', version, 'digests', learnt_digests(said, instance, has_changed, revision), 'rev', revision)

local master, master_ha = master_of(cluster, broker, id)
local seats = decision.lowers and seats_in_order(broker) or {}
return { has_changed and DONE or UNCHANGED, table_version, incarnation, master, master_ha, gap, seats }
