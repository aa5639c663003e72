-- report: the outcome of attempts. The lease ends in the same step, so a slow orchestrator never causes a second run.
-- Takes   of each attempt: execution, epoch, run, node, attempt, outcome
-- Guard   mine, the node RUNNING, the attempt fits, the execution RUNNING or FAILED; else the report is stale.
-- Effect  REPORTED, the lease is gone, a hint to results. Stale ones are counted, for /metrics.
-- Answers the positions (from 1) of stale reports.
local function report(keys, args)
  local P = open_partition(keys)
  local items = from_msgpack(args[1])
  load_all(P, items, 6, 1, 3)
  local stale = {}
  for i = 1, #items, 6 do
    local X = mine_alive(P, items[i], items[i + 1], items[i + 2])
    local name, attempt = items[i + 3], items[i + 4]
    local nd = X and read_node(X, name)
    if nd and nd[STATE] == NODE.RUNNING and nd[ATTEMPT] == attempt then
      move(nd, NODE.REPORTED)
      nd[FINISHED_AT] = P.now
      write_node(P, X, name)
      local whose = token(X, name, attempt)
      stop_timer(P, 'L|' .. whose)
      queue_hint(P, X, whose, nd[RETRIES], nd[LOST], items[i + 5])
    else
      stale[#stale + 1] = (i + 5) / 6
    end
  end
  flush(P)
  if #stale > 0 then call('HINCRBY', P.prefix .. 'metrics', 'late_results', #stale) end
  return stale
end
