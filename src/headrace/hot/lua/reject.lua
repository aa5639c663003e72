-- reject: tasks that have waited too long for a handler that no live worker offers fail for good.
-- Takes   {handler, age in ms, most entries, outcome}
-- Effect  entries of that age are deleted from the head of the handler's stream; where the execution is mine and RUNNING,
--         the node QUEUED and the attempt fits: REPORTED, the outcome to results. Those of another format stay.
-- Answers how many nodes were rejected.
local function reject(keys, args)
  local P = open_partition(keys)
  local handler, age_ms, most, outcome = unpack(from_msgpack(args[1]))
  local stream = P.prefix .. 'tasks:' .. handler
  local entries = call('XRANGE', stream, '-', format('%.0f', P.now - age_ms), 'COUNT', most)
  local rejected = 0
  for _, entry in ipairs(entries) do
    local id, epoch, run, name, attempt = match(entry[2][2], TOKEN)
    if load(P, id, true) ~= nil then
      call('XDEL', stream, entry[1])
      local X = mine(P, id, epoch, tonumber(run))
      local nd = X and X.status == EXECUTION.RUNNING and read_node(X, name)
      if nd and nd[STATE] == NODE.QUEUED and nd[ATTEMPT] == tonumber(attempt) then
        rejected = rejected + 1
        move(nd, NODE.REPORTED)
        nd[FINISHED_AT] = P.now
        write_node(P, X, name)
        count_under_way(P, X)
        queue_hint(P, X, entry[2][2], nd[RETRIES], nd[LOST], outcome)
      end
    end
  end
  flush(P)
  return rejected
end
