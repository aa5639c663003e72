-- dispatch: rendered nodes go to the workers, and only then are the hints consumed that led here.
-- Takes   1. of each node: execution, epoch, run, node, attempt = last + 1, number of parents, handler, failed
--         2. the hints to acknowledge   3. and on: of each node the task's message; when its config cannot be rendered,
--         `failed` is true and this is the outcome.
-- Guard   each node: the execution is mine and RUNNING, the node PENDING or RETRYING, the attempt fits, all parents are
--         done (a single one is: it led here); else it is passed over.
-- Effect  QUEUED, a task in the handler's stream, the retry timer gone; or REPORTED with a final failure in results.
--         Then the hints are acknowledged.
-- Answers how many nodes were taken.
local function dispatch(keys, args)
  local P = open_partition(keys)
  local items, hints = from_msgpack(args[1]), from_msgpack(args[2])
  load_all(P, items, 8, 1, 3)
  local taken, message = 0, 2
  for i = 1, #items, 8 do
    message = message + 1
    local X = mine(P, items[i], items[i + 1], items[i + 2])
    if X and X.status == EXECUTION.RUNNING then
      local name, attempt, parents = items[i + 3], items[i + 4], items[i + 5]
      local raw = read_node(X, name)
      local state, last = node_head(raw)
      if (state == NODE.PENDING or state == NODE.RETRYING) and last + 1 == attempt
         and (parents < 2 or tonumber(call('HGET', X.key, 'd:' .. name) or 0) == parents) then
        taken = taken + 1
        if state == NODE.RETRYING then stop_timer(P, timer('T', X, name, last)) end
        if items[i + 7] then
          local nd = unpack_node(raw)
          move(nd, NODE.REPORTED)
          nd[ATTEMPT], nd[QUEUED_AT], nd[STARTED_AT], nd[FINISHED_AT], nd[WORKER], nd[ERROR] = attempt, P.now, 0, P.now, '', ''
          write_node(P, X, name, pack_node(nd))
          count_under_way(P, X)
          queue_hint(P, X, token(X, name, attempt), raw, args[message])
        else
          queue_node(P, X, name, raw, items[i + 6], args[message])
        end
      end
    end
  end
  flush(P)
  acknowledge(P, hints)
  return taken
end
