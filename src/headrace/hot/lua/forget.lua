-- forget: an ended execution whose every event is known to the caller leaves the store.
-- Takes   {ttl of an unused definition in s, then of each: execution, epoch, last event, whether the caller has seen that
--          it is behind the record: the store went back in time}
-- Guard   each: epoch and last event equal; ended, and nothing RUNNING or REPORTED unless it was cancelled, or behind.
-- Answers the positions (from 1) of those that are gone.
local function forget(keys, args)
  local P = open_partition(keys)
  local items = from_msgpack(args[1])
  load_all(P, items, 4, 2)
  local gone = {}
  for i = 2, #items, 4 do
    local X = load(P, items[i])
    if X and X.status ~= EXECUTION.OPENING and X.epoch == items[i + 1] and X.last == items[i + 2]
       and (items[i + 3] or X.status == EXECUTION.CANCELLED
            or ((X.status == EXECUTION.COMPLETED or X.status == EXECUTION.FAILED) and X.busy == 0)) then
      drop(P, X)
      P.executions[items[i]] = false
      gone[#gone + 1] = (i + 2) / 4
    end
  end
  flush_dropped(P, items[1])
  return gone
end
