-- forget: an ended execution whose every event is known to the caller leaves the store.
-- Takes   {ttl of an unused definition in s, then of each: execution, epoch, last event}
-- Guard   each: ended, epoch and last event equal, and nothing RUNNING or REPORTED unless it was cancelled.
-- Answers the positions (from 1) of those that are gone.
local function forget(keys, args)
  local P = open_partition(keys)
  local items = from_msgpack(args[1])
  load_all(P, items, 3, 2)
  local gone = {}
  for i = 2, #items, 3 do
    local X = load(P, items[i])
    if X and X.epoch == items[i + 1] and X.last == items[i + 2]
       and (X.status == EXECUTION.CANCELLED
            or ((X.status == EXECUTION.COMPLETED or X.status == EXECUTION.FAILED) and X.busy == 0)) then
      drop(P, X, items[1])
      P.executions[items[i]] = false
      gone[#gone + 1] = (i + 1) / 3
    end
  end
  return gone
end
