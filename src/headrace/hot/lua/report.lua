-- report: the outcome of attempts. The lease ends in the same step, so a slow orchestrator never causes a second run.
-- Takes   of each attempt: execution, epoch, run, node, attempt, outcome, with children, number of children, and then of
--         each child: name, number of parents, handler, and which argument is its task, or 0. The tasks are further
--         arguments. With children, all of the node's children are there, and the outcome is the output itself.
-- Guard   mine, the node RUNNING, the attempt fits, the execution RUNNING or FAILED; else the report is stale.
-- Effect  the lease is gone. REPORTED, and a hint to results; with children at once what `advance` would do (complete.lua),
--         and a hint only if a child is ready that has no task with it; its outcome says that the node is complete.
--         Stale ones are counted, for /metrics.
-- Answers the positions (from 1) of stale reports.

-- -> whether a child is left for the orchestrators
local function complete_node(P, X, name, attempt, raw, items, at, args)
  local count = items[at + 7]
  local cursor, found = succeed(P, X, name, attempt, items[at + 5], count), 0
  if X.status == EXECUTION.RUNNING then
    found, cursor = answer_ready(P, X, items, at + 8, count, 0, {}, args), count
  end
  write_node(P, X, name, as_completed(raw, cursor))
  return found > 0
end

local function report(keys, args)
  local P = open_partition(keys)
  local items = from_msgpack(args[1])
  local at, last, nodes = 1, #items, {}
  while at <= last do
    local found = #nodes
    nodes[found + 1], nodes[found + 2] = items[at], items[at + 3]
    at = at + 8 + 4 * items[at + 7]
  end
  load_all(P, nodes, 2, 1, 1)
  local number, stale = 0, {}
  at = 1
  while at <= last do
    number = number + 1
    local X = mine_alive(P, items[at], items[at + 1], items[at + 2])
    local name = items[at + 3]
    local raw = X and read_node(X, name)
    local state, attempt = node_head(raw)
    if state == NODE.RUNNING and attempt == items[at + 4] then
      local whose, reported = token(X, name, attempt), as_reported(state, raw, P.now_packed)
      stop_timer(P, 'L|' .. whose)
      if not items[at + 6] then
        write_node(P, X, name, reported)
        queue_hint(P, X, whose, raw, items[at + 5])
      elseif complete_node(P, X, name, attempt, reported, items, at, args) then
        queue_hint(P, X, whose, raw, '{"complete":true,"output":' .. cjson.encode(items[at + 5]) .. '}')
      end
    else
      stale[#stale + 1] = number
    end
    at = at + 8 + 4 * items[at + 7]
  end
  flush(P)
  if #stale > 0 then call('HINCRBY', P.prefix .. 'metrics', 'late_results', #stale) end
  return stale
end
