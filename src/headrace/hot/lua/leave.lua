-- leave: orchestrators that are gone are taken off the results group; with them would go what they hold pending.
-- Takes   the consumers' names
-- Guard   each: nothing is pending under its name. Where the group is gone (the store was wiped), nothing is to be done.
-- Answers how many were taken off.
local function leave(keys, args)
  local P = open_partition(keys)
  local left = 0
  for _, consumer in ipairs(from_msgpack(args[1])) do
    local pending = redis.pcall('XPENDING', P.results, RESULTS_GROUP, '-', '+', 1, consumer)
    if pending.err then return left end                                    -- the group is gone, and everybody with it
    if #pending == 0 then
      call('XGROUP', 'DELCONSUMER', P.results, RESULTS_GROUP, consumer)
      left = left + 1
    end
  end
  return left
end
