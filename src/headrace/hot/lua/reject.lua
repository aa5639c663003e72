-- reject: tasks that have waited too long for a handler that no live worker offers fail for good.
-- Takes   {handler, age in ms, most tasks to look at, outcome}
-- Effect  tasks of that age are taken from the head of the handler's list; where the execution is mine and RUNNING, the
--         node QUEUED and the attempt fits: REPORTED, the outcome to results. Those of another format go to the end.
-- Answers how many nodes were rejected.
local function reject(keys, args)
  local P = open_partition(keys)
  local handler, age_ms, most, outcome = unpack(from_msgpack(args[1]))
  local list = P.prefix .. 'tasks:' .. handler
  local messages = call('LRANGE', list, 0, most - 1)
  local rejected, taken, strange = 0, 0, {}
  for i = 1, #messages do
    local id, epoch, run, name, attempt = read_token(messages[i])
    local X = load(P, id, true) and mine(P, id, epoch, run)
    local raw = X and X.status == EXECUTION.RUNNING and read_node(X, name)
    local nd = unpack_node(raw)
    local waits = nd[STATE] == NODE.QUEUED and nd[ATTEMPT] == attempt
    if waits and nd[QUEUED_AT] > P.now - age_ms then break end         -- and those behind it came later
    taken = i
    if load(P, id, true) == nil then strange[#strange + 1] = messages[i] end
    if waits then
      rejected = rejected + 1
      write_node(P, X, name, as_reported(nd[STATE], raw, P.now_packed))
      count_under_way(P, X)
      queue_hint(P, X, token(X, name, attempt), raw, outcome)
    end
  end
  if taken > 0 then call('LTRIM', list, taken, -1) end
  if #strange > 0 then call('RPUSH', list, unpack(strange)) end
  flush(P)
  return rejected
end
