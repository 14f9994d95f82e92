--[[
Creates or replaces an identity. A name, an access key and the name in a certificate belong to one identity each.

KEYS[1]  meta

ARGV[1]  by           JSON members `"actor":…,"source":…` for the history
ARGV[2]  name
ARGV[3]  role
ARGV[4]  members      JSON members of the stored object
ARGV[5]  access_key   empty: none
ARGV[6]  certificate  empty: none
ARGV[7]  valid_ms     how long it is valid; 0: without end
ARGV[8]  replaces     1: the name may exist
ARGV[9]  limit        largest number of identities

reply    {status, version, conflict} DONE, REFUSED: 1 the name exists, 2 the access key or 3 the certificate belongs
         to another identity, 4 there are too many
]]
-- include: statuses
-- include: keys
-- include: types
-- include: version
-- include: json
-- include: clock
-- include: changes
-- include: hashes
-- include: identities

local by, name, role, members = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local access_key, certificate = ARGV[5], ARGV[6]
local valid_ms, replaces, limit = tonumber(ARGV[7]), ARGV[8] == '1', tonumber(ARGV[9])
local NAME_EXISTS, ACCESS_KEY_EXISTS, CERTIFICATE_EXISTS, TOO_MANY = 1, 2, 3, 4

check_tables()
local stored = read_hash(table_key('identities'))
local now, created, count = server_ms(), nil, 0
for other, packed in pairs(stored) do
  local fields = cjson.decode(packed)
  count = count + 1
  if other == name then
    created = tonumber(fields.created_ms)
  elseif access_key ~= '' and fields.access_key == access_key then
    return { REFUSED, current_version(), ACCESS_KEY_EXISTS }
  elseif certificate ~= '' and fields.certificate == certificate then
    return { REFUSED, current_version(), CERTIFICATE_EXISTS }
  end
end
if stored[name] and not replaces then
  return { REFUSED, current_version(), NAME_EXISTS }
elseif not stored[name] and count >= limit then
  return { REFUSED, current_version(), TOO_MANY }
end

local packed = '{"revision":' .. ms_text(current_version() + 1)
  .. ',"created_ms":' .. ms_text(created or now)
  .. ',"changed_ms":' .. ms_text(now)
  .. ',"expires_ms":' .. ms_text(valid_ms > 0 and now + valid_ms or 0)
  .. ',' .. members .. '}'
return { DONE, put_identity(name, packed, role, stored[name] and 'replaced' or 'created', by), 0 }
