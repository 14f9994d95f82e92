--[[
Limits of the route table. They are settings, so the worker sends them along, and they are checked before the first
write. A limit of 0 means no limit. Objects beyond a limit that was lowered remain, but no more are accepted.
Uses: keys, groups.
]]
local function read_limits(packed)
  local clusters, groups, brokers, seats, topics = string.match(packed, '^(%d+) (%d+) (%d+) (%d+) (%d+)$')
  return { clusters = tonumber(clusters), groups = tonumber(groups), brokers = tonumber(brokers),
    seats = tonumber(seats), topics = tonumber(topics) }
end

local function exceeds(count, limit)
  return limit > 0 and count > limit
end

local function count_groups()
  local count = 0
  for _, cluster in ipairs(redis.call('SMEMBERS', table_key('clusters'))) do
    count = count + redis.call('SCARD', key_of('cluster', cluster))
  end
  return count
end

local function grows_beyond(key, new, limit)
  return new > 0 and exceeds(redis.call('HLEN', key) + new, limit)
end

-- Each of these returns the setting whose limit would be exceeded, or nil. This one is about what a registration
-- creates even when it is refused.
local function name_limit_exceeded(limits, cluster, group)
  if redis.call('SISMEMBER', table_key('clusters'), cluster) == 0
    and exceeds(redis.call('SCARD', table_key('clusters')) + 1, limits.clusters) then
    return 'max_clusters'
  end
  if not group.cluster and limits.groups > 0 and exceeds(count_groups() + 1, limits.groups) then
    return 'max_groups'
  end
end

local function seat_limit_exceeded(limits, group, instance, decision)
  if not instance.inc and exceeds(redis.call('ZCARD', table_key('deadlines')) + 1, limits.brokers) then
    return 'max_brokers'
  end
  local seats = 1 - #decision.former_ids
  for _ in pairs(seats_of(group)) do
    seats = seats + 1
  end
  if not decision.holder and #decision.former_ids == 0 and exceeds(seats, limits.seats) then
    return 'max_seats_per_group'
  end
end

-- Static mappings may belong to any host, which need not be a broker.
local function mapping_limit_exceeded(limits, list, mappings)
  local new_hosts = 0
  for _, of_host in ipairs(mappings) do
    local key, new = key_of('mapping', of_host.host), (of_host.to - of_host.from + 1) / 2
    new_hosts = new_hosts + 1 - redis.call('SISMEMBER', table_key('mapped'), of_host.host)
    -- Which of them are new is looked up only if it matters, because each costs a call.
    if grows_beyond(key, new, limits.topics) then
      for at = of_host.from, of_host.to, 2 do
        new = new - redis.call('HEXISTS', key, list[at])
      end
      if grows_beyond(key, new, limits.topics) then
        return 'max_topics_per_broker'
      end
    end
  end
  if new_hosts > 0 and exceeds(redis.call('SCARD', table_key('mapped')) + new_hosts, limits.groups) then
    return 'max_groups'
  end
end
