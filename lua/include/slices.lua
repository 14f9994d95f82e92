--[[
Runs one command with more arguments than `unpack` can pass (about 8,000), in slices. Their length is even, so pairs
stay together. Returns the sum of the replies.
]]
local SLICE = 4000

local function call_in_slices(command, key, list, from, to)
  local sum = 0
  for first = from, to, SLICE do
    sum = sum + redis.call(command, key, unpack(list, first, math.min(first + SLICE - 1, to)))
  end
  return sum
end
