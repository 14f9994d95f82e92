--[[
Compares integers that are given as text. Lua's numbers are exact up to 2^53 only, and ids and state versions have 64
bits.
]]
local function is_less(one, other)
  local is_negative = string.sub(one, 1, 1) == '-'
  if is_negative ~= (string.sub(other, 1, 1) == '-') then
    return is_negative
  end
  if #one ~= #other then
    return (#one < #other) ~= is_negative
  end
  return one ~= other and (one < other) ~= is_negative
end
