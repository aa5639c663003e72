-- renew: a worker's heartbeat. Extends the leases of attempts that still fit and says which do not.
-- Takes   {worker, what it tells about itself, lease in ms, then of each attempt: execution, epoch, run, node, attempt}
-- Guard   each: mine, the node RUNNING, the attempt fits, the execution RUNNING or FAILED.
-- Answers the positions (from 1) of the attempts that no longer fit: the worker stops those handlers.
local function renew(keys, args)
  local P = open_partition(keys)
  local items = from_msgpack(args[1])
  load_all(P, items, 5, 4, 3)
  local lost = {}
  for i = 4, #items, 5 do
    local X = mine_alive(P, items[i], items[i + 1], items[i + 2])
    local state, attempt = node_head(X and read_node(X, items[i + 3]))
    if state == NODE.RUNNING and attempt == items[i + 4] then
      set_timer(P, P.now + items[3], timer('L', X, items[i + 3], attempt))
    else
      lost[#lost + 1] = (i + 1) / 5
    end
  end
  flush(P)
  call('HSET', P.workers, items[1], P.now_text .. '|' .. items[2])
  return lost
end
