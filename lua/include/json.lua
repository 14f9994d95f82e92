--[[
JSON text by concatenation: an empty Lua table cannot say whether it is a list or an object, and numbers of more than 14
digits lose some in cjson. Numbers travel as the text they came in.
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
