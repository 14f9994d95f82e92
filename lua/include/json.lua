--[[
Builds JSON text by concatenation. cjson is used for single strings only: an empty Lua table does not say whether it
is a list or an object, and cjson rounds numbers of more than 14 digits. Numbers stay the text that they arrived as.
]]
local function quote(text)
  return cjson.encode(text)
end

local function string_list(texts)
  local quoted = {}
  for i, text in ipairs(texts) do
    quoted[i] = quote(text)
  end
  return '[' .. table.concat(quoted, ',') .. ']'
end

-- The queue item of a packed queue entry.
local function item_of(topic, packed)
  local perm, read, write, flags = string.match(packed, '^(%-?%d+) (%-?%d+) (%-?%d+) (%-?%d+)')
  return '{"t":' .. quote(topic) .. ',"r":' .. read .. ',"w":' .. write .. ',"p":' .. perm .. ',"f":' .. flags .. '}'
end
