-- release: a stopping worker gives back what it has not finished. No retry is counted.
-- Takes   1. of each attempt: execution, epoch, run, node, attempt, handler   2. and on: of each the message of its next
--         task, under the next attempt number
-- Guard   mine, the node RUNNING, the attempt fits, the execution RUNNING or FAILED.
-- Effect  QUEUED under the next attempt number, so that the old token never fits again; the lease is gone; and, while
--         the execution is RUNNING, a new task.
-- Answers how many were given back.
local function release(keys, args)
  local P = open_partition(keys)
  local items = from_msgpack(args[1])
  load_all(P, items, 6, 1, 3)
  local given = 0
  for i = 1, #items, 6 do
    local X = mine_alive(P, items[i], items[i + 1], items[i + 2])
    local name, attempt = items[i + 3], items[i + 4]
    local nd = X and unpack_node(read_node(X, name))
    if nd and nd[STATE] == NODE.RUNNING and nd[ATTEMPT] == attempt then
      given = given + 1
      stop_timer(P, timer('L', X, name, attempt))
      move(nd, NODE.QUEUED)
      nd[ATTEMPT], nd[QUEUED_AT], nd[STARTED_AT], nd[WORKER] = attempt + 1, P.now, 0, ''
      write_node(P, X, name, pack_node(nd))
      X.busy = X.busy - 1
      record(X, name, NODE.QUEUED, nd[ATTEMPT], '')
      if X.status == EXECUTION.RUNNING then queue_task(P, items[i + 5], args[(i + 11) / 6]) end
    end
  end
  flush(P)
  return given
end
