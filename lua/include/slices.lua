--[[
One command with more arguments than Lua's stack holds (some 8,000): in slices of an even number, so that pairs stay together.
]]
local SLICE = 4000

local function call_in_slices(command, key, list, from, to)
  for first = from, to, SLICE do
    redis.call(command, key, unpack(list, first, math.min(first + SLICE - 1, to)))
  end
end
