--[[
Registers an instance with some or all of its topics, in one step (Apache's registerBroker, which holds a lock
meanwhile). The worker has compared the registration with the queues that it knows, and sends only the difference.
`base` says which state of the group it compared with; if the group has changed since, the script changes nothing and
the worker starts over.

KEYS[1]   meta

ARGV[1]   by              JSON members `"actor":…,"source":…` for the history
ARGV[2]   cluster
ARGV[3]   broker          name of the group
ARGV[4]   id              0 is the master
ARGV[5]   address         host:port
ARGV[6]   ha              replication address, may be empty
ARGV[7]   zone            empty for none
ARGV[8]   acting          0 or 1; empty for an old broker that does not send it
ARGV[9]   timeout         ms without a heartbeat after which the instance expires
ARGV[10]  version         data version, packed; empty counts as changed every time
ARGV[11]  incarnation     64 random bits, used when the address takes a seat that it did not have
ARGV[12]  digest          registration digest, which a later touch is compared with
ARGV[13]  filters         JSON list; `[]` removes the stored list, empty keeps it
ARGV[14]  base            `<history>:<revision of the group>`
ARGV[15]  guarded         1: refuse a single topic of an instance that has no seat yet
ARGV[16]  staged          name of a queue table staged by copy_queues and stage_queues, or empty
ARGV[17]  staged_entries  number of its entries
ARGV[18]  staged_chunks   number of its chunks of queue items for the history
ARGV[19]  staged_all      1: the staged table replaces known entries, which is right only if the data version changed;
                          0: it does not, which is right only if it did not; empty: there are none to replace
ARGV[20]  worker          worker whose connection it came over, which opens a session; empty for none
ARGV[21]  stamp           stamp of that session
ARGV[22]  limits          clusters, groups, brokers, seats of a group and topics of a group, at most (include/limits)
ARGV[23]  new             number of topics that the base does not have
ARGV[24]  differing       number of topics that the base has with other values
ARGV[25]  dropped         number of topics to remove (deleteTopicWithBrokerRegistration, replace)
ARGV[26]  mapping_hosts   number of host brokers of the static mappings that differ
ARGV[27…] topic, packed queue data (new) · topic, packed queue data (differing) · topic (dropped) ·
          for each host broker: its name, number of mappings, topic, mapping as JSON, … · then, unless they are
          staged, chunks of at most 1,000 queue items for the history: kind of chunk (n, d or x for new, differing,
          dropped) and number of items as `<kind> <number>`, JSON items, JSON items that the base has for these topics

reply     {status, version, incarnation, master address, master HA address, gap, seats}
          gap: ms since the heartbeat before, -1 if there was none
          seats: the group's seats as id, address, …, smallest id first, if the registration lowered the smallest id;
          else none
          DONE, UNCHANGED, LIMITED ({status, version, setting}), STALE (the base or data version is not as assumed, or the staged table has expired),
          REFUSED, TURNED_DOWN
]]
-- include: statuses
-- include: keys
-- include: types
-- include: version
-- include: hashes
-- include: json
-- include: clock
-- include: changes
-- include: deadline_clock
-- include: sessions
-- include: established
-- include: heartbeat
-- include: integers
-- include: groups
-- include: slices
-- include: staging
-- include: write_permission
-- include: removal
-- include: queue_tables
-- include: entry_parts
-- include: master_of
-- include: seat_decision
-- include: limits
-- include: registration
-- include: smallest_id

local by, cluster, broker, id, address = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local ha, zone, acting, timeout, version = ARGV[6], ARGV[7], ARGV[8], ARGV[9], ARGV[10]
local incarnation, digest, filters, base, guarded = ARGV[11], ARGV[12], ARGV[13], ARGV[14], ARGV[15] == '1'
local staged, staged_entries, staged_chunks = ARGV[16], tonumber(ARGV[17]), tonumber(ARGV[18])
local staged_all, worker, stamp, limits = ARGV[19], ARGV[20], ARGV[21], read_limits(ARGV[22])
local counts = { new = tonumber(ARGV[23]), differing = tonumber(ARGV[24]), dropped = tonumber(ARGV[25]),
  mapping_hosts = tonumber(ARGV[26]) }
local FIRST_ITEM = 27

check_tables()
check_group(cluster, broker)
check_hash('instance', join_instance_name(cluster, address))
check_hash('sessions', worker)
check_hash('staged', staged)
check_hash('staged-changes', staged)
local registration = { by = by, cluster = cluster, broker = broker, id = id, address = address, ha = ha, zone = zone,
  acting = acting, timeout = timeout, version = version, digest = digest, filters = filters, guarded = guarded }
local instance_name = join_instance_name(cluster, address)
local group = read_hash(key_of('broker', broker))
local instance = read_hash(key_of('instance', instance_name))

local history = redis.call('HGET', META, 'history') or ''
local is_staged = staged == '' or has_staged(staged, staged_entries, staged_chunks)
if base ~= history .. ':' .. (group.rev or '0') or not is_staged then
  return { STALE, current_version(), '', '', '', -1 }
end
local decision = decide_seat(registration, group, instance)
local is_accepted = not decision.is_turned_down and not decision.is_refused
local is_staged_otherwise = staged_all ~= '' and (staged_all == '1') ~= decision.replaces_topics
if is_accepted and decision.may_publish and is_staged_otherwise then
  return { STALE, current_version(), '', '', '', -1 }
end

local items = read_items(ARGV, FIRST_ITEM, counts)
for _, of_host in ipairs(items.mappings) do
  check_hash('mapping', of_host.host)
  check_hash('broker', of_host.host)
end
local function topic_limit_exceeded()
  local key = key_of('queues', broker)
  local grows = staged == '' and grows_beyond(key, math.max(counts.new - counts.dropped, 0), limits.topics)
  local grows_staged = staged ~= '' and staged_entries > redis.call('HLEN', key) and exceeds(staged_entries, limits.topics)
  return (grows or grows_staged) and 'max_topics_per_broker' or mapping_limit_exceeded(limits, ARGV, items.mappings)
end
local exceeded = name_limit_exceeded(limits, cluster, group)
if is_accepted then
  exceeded = exceeded or seat_limit_exceeded(limits, group, instance, decision)
    or (decision.may_publish and topic_limit_exceeded())
end
if exceeded then
  return { LIMITED, current_version(), exceeded }
end

local group_marked = mark_group(registration, group)
if not is_accepted then
  decline(registration, decision, instance, group_marked)
  return { decision.is_turned_down and TURNED_DOWN or REFUSED, current_version(), '', '', '', -1 }
end
take_seat(registration, decision)
if not decision.takes_seat and instance.inc then
  incarnation = instance.inc
end

local queue_chunks, mapped = {}, {}
if decision.may_publish then
  queue_chunks = apply_queues(broker, items, decision.replaces_topics, staged)
  if decision.replaces_topics then
    mapped = apply_mappings(items)
  end
elseif staged ~= '' then
  redis.call('UNLINK', key_of('staged', staged), key_of('staged-changes', staged))
end

local filters_changed = store_filters(registration, instance_name)
local seats_changed = decision.takes_seat or #decision.former_ids > 0
local group_changed = group_marked or seats_changed or #queue_chunks > 0 or #mapped > 0
local instance_changed = instance.inc ~= incarnation or instance.broker ~= broker or instance.id ~= id
  or instance.dv ~= version or instance.ha ~= ha or instance.timeout ~= timeout
local has_changed = group_changed or instance_changed or filters_changed
local deadline_now, server_now = deadline_clock(by)
if instance.inc ~= incarnation then
  record_new_instance(instance_name, deadline_now)
end
local gap = record_heartbeat(instance_name, timeout, deadline_now, server_now)
if worker ~= '' then
  open_session(worker, stamp, instance_name, incarnation, deadline_now)
  record_source(by, instance_name)
end

local table_version, revision = current_version(), group.rev or '0'
if has_changed then
  local kind = decision.takes_seat and 'broker-registered' or 'broker-changed'
  local fields = seat_fields(registration, decision, incarnation, filters_changed)
  local before = values_before(registration, decision, group, instance)
  table_version = append_parts(kind, by, fields, before, queue_chunks, mapped)
end
if group_changed then
  revision = tostring(table_version)
  raise_revisions(registration, mapped, revision)
end
local digests = digests_after(registration, instance, has_changed, revision)
redis.call('HSET', key_of('instance', instance_name), 'broker', broker, 'id', id, 'inc', incarnation,
  'timeout', timeout, 'ha', ha, 'dv', version, 'digests', digests, 'rev', revision,
  'since', instance.inc == incarnation and (instance.since or '') or ms_text(server_now))

local master, master_ha = master_of(cluster, broker, id)
local seats = decision.lowers_smallest_id and seats_in_order(broker) or {}
return { has_changed and DONE or UNCHANGED, table_version, incarnation, master, master_ha, gap, seats }
