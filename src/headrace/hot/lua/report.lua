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
    local name = items[i + 3]
    local raw = X and read_node(X, name)
    local state, attempt = node_head(raw)
    if state == NODE.RUNNING and attempt == items[i + 4] then
      write_node(P, X, name, as_reported(state, raw, P.now_packed))
      local whose = token(X, name, attempt)
      stop_timer(P, 'L|' .. whose)
      queue_hint(P, X, whose, raw, items[i + 5])
    else
      stale[#stale + 1] = (i + 5) / 6
    end
  end
  flush(P)
  if #stale > 0 then call('HINCRBY', P.prefix .. 'metrics', 'late_results', #stale) end
  return stale
end
