--[[
A member of a group announces itself, with (some of) its topics: all effects in one step (Apache's registerBroker, under its
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
ARGV[15]  guarded     1: one topic from a member not yet known is refused
ARGV[16]  staged      name of a queue table prepared by stage_queues, else empty
ARGV[17]  staged_all  1: the staged table holds replacements of known entries too, right only when the version changed
ARGV[18]  worker      whose connection this came over, opening a session; empty for none
ARGV[19]  new         number of topics the base does not have
ARGV[20]  differing   number of topics the base has with other values
ARGV[21]  dropped     number of topics to remove (deleteTopicWithBrokerRegistration, replace)
ARGV[22]  mappings    number of static mappings that differ
ARGV[23…] topic, packed queue data (new) · topic, packed queue data (differing) · topic (dropped) ·
          host broker, topic, mapping as JSON · then ready-made queue items for the history, in chunks of at most 1,000:
          kind of chunk (n, d or x, for new, differing, dropped), number of items, JSON items

reply     {status, version, incarnation, master address, master HA address}
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

local by, cluster, broker, id, address = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local ha, zone, acting, timeout, version = ARGV[6], ARGV[7], ARGV[8], ARGV[9], ARGV[10]
local incarnation, digest, filters, base = ARGV[11], ARGV[12], ARGV[13], ARGV[14]
local guarded, staged, staged_all, worker = ARGV[15] == '1', ARGV[16], ARGV[17] == '1', ARGV[18]
local counts = { new = tonumber(ARGV[19]), differing = tonumber(ARGV[20]), dropped = tonumber(ARGV[21]),
  mappings = tonumber(ARGV[22]) }
local FIRST_ITEM = 23

local member = member_of(cluster, address)
local group_key = key_of('broker', broker)
local group = read_hash(group_key)
local instance = read_hash(key_of('instance', member))
local seats = seats_of(group)
local is_new_group = group.cluster == nil

-- Look first. ---------------------------------------------------------------------------------------------------------
local history = redis.call('HGET', META, 'history') or ''
local is_prepared = staged == '' or redis.call('EXISTS', key_of('staged', staged)) == 1
if base ~= history .. ':' .. (group.rev or '0') or not is_prepared then
  return { STALE, current_version(), '', '', '' }
end

local function state_version(packed)
  return tonumber(string.match(packed or '', '^(%-?%d+)') or '0')
end

local former_ids = {}  -- one address, one id
for seat, holder in pairs(seats) do
  if holder == address and seat ~= id then
    former_ids[#former_ids + 1] = seat
  end
end
for _, seat in ipairs(former_ids) do
  seats[seat] = nil
end

local holder = seats[id]
local turned_down = false
if holder and holder ~= address then
  local other = redis.call('HMGET', key_of('instance', member_of(cluster, holder)), 'inc', 'dv')
  turned_down = other[1] and state_version(other[2]) > state_version(version)
end
local refused = not turned_down and not holder and guarded

local takes_seat = holder ~= address
local is_first = is_new_group or not holder
local has_changed = instance.inc == nil or version == '' or instance.dv ~= version
seats[id] = address
local is_prime = acting ~= '' and id ~= '0' and smallest_id(seats) == id
local publishes = id == '0' or is_prime
local replaces = is_first or has_changed
if publishes and staged_all and not replaces and not turned_down and not refused then
  return { STALE, current_version(), '', '', '' }
end

-- What holds even for one that is turned down or refused. ---------------------------------------------------------------
redis.call('SADD', table_key('clusters'), cluster)
local joined = redis.call('SADD', key_of('cluster', cluster), broker) == 1
local flags_changed = (group.zone or '') ~= zone or (group.acting == '1') ~= (acting == '1')
if is_new_group then
  redis.call('HSET', group_key, 'cluster', cluster)
end
if flags_changed then
  redis.call('HDEL', group_key, 'zone', 'acting')
  if zone ~= '' then
    redis.call('HSET', group_key, 'zone', zone)
  end
  if acting == '1' then
    redis.call('HSET', group_key, 'acting', '1')
  end
end
local last_heard = redis.call('ZSCORE', table_key('heartbeats'), member)
local function leave_former_ids(cause)
  for _, former in ipairs(former_ids) do
    redis.call('HDEL', group_key, 'addr:' .. former)
    set_revision(broker, append_change('broker-removed', by, removed_fields({ cluster = cluster, broker = broker,
      address = address, cause = cause, last_heartbeat = last_heard, lost_ms = '' }, former, instance, false)))
  end
end

if turned_down or refused then
  leave_former_ids('turned-down')
  local loses_instance = turned_down and instance.inc ~= nil
  if turned_down then
    drop_instance(member)
  end
  if is_new_group or flags_changed or joined or loses_instance then
    set_revision(broker, append_change('group-changed', by, group_fields(cluster, broker, { member })))
  end
  return { refused and REFUSED or TURNED_DOWN, current_version(), '', '', '' }
end

-- The seat. -------------------------------------------------------------------------------------------------------------
leave_former_ids('moved')
if holder and takes_seat then
  local other = member_of(cluster, holder)
  set_revision(broker, append_change('broker-removed', by, removed_fields({ cluster = cluster, broker = broker,
    address = holder, cause = 'replaced', last_heartbeat = redis.call('ZSCORE', table_key('heartbeats'), other),
    lost_ms = '' }, id, read_hash(key_of('instance', other)), false)))
end
if not takes_seat and instance.inc then
  incarnation = instance.inc
end
redis.call('HSET', group_key, 'addr:' .. id, address)

-- Its queues and mappings. ------------------------------------------------------------------------------------------------
local items = read_items(ARGV, FIRST_ITEM, counts)
local queue_chunks, mapped = {}, {}
if publishes then
  queue_chunks = apply_queues(broker, items, replaces, staged)
  if replaces then
    mapped = apply_mappings(items)
  end
elseif staged ~= '' then
  redis.call('UNLINK', key_of('staged', staged))
end

-- Its live entry. -----------------------------------------------------------------------------------------------------------
local filters_changed = false
if filters == '[]' then
  filters_changed = redis.call('HDEL', table_key('filters'), member) == 1
elseif filters ~= '' and redis.call('HGET', table_key('filters'), member) ~= filters then
  redis.call('HSET', table_key('filters'), member, filters)
  filters_changed = true
end
local group_changed = is_new_group or joined or flags_changed or takes_seat or #former_ids > 0
  or #queue_chunks > 0 or #mapped > 0
local instance_changed = instance.inc ~= incarnation or instance.broker ~= broker or instance.id ~= id
  or instance.dv ~= version or instance.ha ~= ha or instance.timeout ~= timeout
local deadline_now, server_now = deadline_clock(by)
mark_heard(member, timeout, deadline_now, server_now)
if worker ~= '' then
  open_session(worker, member, incarnation)
end

local book_version = current_version()
if group_changed or instance_changed or filters_changed then
  local seat_fields = '"cluster":' .. quote(cluster) .. ',"broker":' .. quote(broker) .. ',"id":' .. id
    .. ',"addr":' .. quote(address) .. ',"incarnation":"' .. incarnation .. '","first":' .. tostring(is_first)
    .. ',"zone":' .. (zone ~= '' and quote(zone) or 'null') .. ',"acting":' .. tostring(acting == '1')
    .. ',"ha":' .. quote(ha) .. ',"timeout_ms":' .. timeout
    .. (#mapped > 0 and ',"mapped":' .. string_list(mapped) or '') .. (filters_changed and ',"filters":true' or '')
  local kind = takes_seat and 'broker-registered' or 'broker-changed'
  book_version = append_parts(kind, by, seat_fields, queue_chunks)
end
local revision = group.rev or '0'
if group_changed then
  revision = tostring(book_version)
  set_revision(broker, revision)
  for _, host in ipairs(mapped) do
    if host ~= broker and redis.call('EXISTS', key_of('broker', host)) == 1 then
      set_revision(host, revision)
    end
  end
end

-- A digest says: this very registration would change nothing. It holds as long as the group does not change; several are
-- kept, since a broker may send its table in parts.
local DIGEST_LENGTH, DIGESTS_KEPT = 32, 16
local digests = digest
if not group_changed and not instance_changed and not filters_changed and instance.rev == revision then
  digests = string.sub((instance.digests or '') .. digest, -DIGEST_LENGTH * DIGESTS_KEPT)
end
redis.call('HSET', key_of('instance', member), 'broker', broker, 'id', id, 'inc', incarnation, 'timeout', timeout,
  'ha', ha, 'dv', version, 'digests', digests, 'rev', revision)

local master, master_ha = master_of(cluster, broker, id)
local status = (group_changed or instance_changed or filters_changed) and DONE or UNCHANGED
return { status, book_version, incarnation, master, master_ha }
