-- open: the second half of opening. Large executions are filled in slices; the last slice opens.
-- Takes   {ttl of the reservation in ms, slices {execution, token, rows {node, state, attempt, retries, lost, cursor,
--          queued at, started at, finished at, worker, error}, counts {node, parents done}, outputs {node, output},
--          header or nil}}; the header is there in the last slice:
--         {run, definition hash, mode, nodes left, nodes failed, created or 0, timeout of the execution in ms or 0,
--          cancelled, start ('roots' for a fresh run, else 'all')}
-- Allowed if the execution is OPENING with this token, and the definition is in the store.
-- Effect  the slice is written; with the header: RUNNING, a start hint, the deadline's timer, an event; or, when it was
--         cancelled or nothing is left to do, ended at once with its event.
-- Answers of each 'filled', 'opened', 'already' (a repeated call), 'gone' (not OPENING with this token),
--         'no definition'.
local function begin(P, X, header)
  local run, definition, mode, left, failed, created, timeout_ms, cancelled, start = unpack(header, 1, 9)
  redis.call('PERSIST', X.key)
  redis.call('PERSIST', P.prefix .. 'def:' .. definition)
  redis.call('HINCRBY', P.defs, definition, 1)
  X.run, X.definition, X.mode, X.left, X.failed = run, definition, string.sub(mode, 1, 1), left, failed
  X.status, X.opened = EXECUTION.RUNNING, EXECUTION.RUNNING
  write_field(P, X, '@created', created > 0 and created or P.now)
  write_field(P, X, '@started', P.now)
  if cancelled then
    finish(P, X, EXECUTION.CANCELLED)
  elseif left == 0 then
    finish(P, X, failed > 0 and EXECUTION.FAILED or EXECUTION.COMPLETED)
  else
    queue_hint(P, X, '', 0, 0, 0, start)
    if timeout_ms > 0 then
      X.deadline = 'd'
      set_timer(P, P.now + timeout_ms, timer('X', X, '', 0))
    end
  end
end

local function open_one(P, slice, ttl_ms)
  local id, new, rows, counts, outputs, header = unpack(slice, 1, 6)
  local X = load(P, id)
  if not X or X.epoch ~= new then return 'gone' end
  if X.status ~= EXECUTION.OPENING then return 'already' end
  if header and redis.call('EXISTS', P.prefix .. 'def:' .. header[2]) == 0 then return 'no definition' end
  for _, row in ipairs(rows) do
    local name = table.remove(row, 1)
    redis.call('HSET', X.key, name, pack_node(row))
  end
  for _, count in ipairs(counts) do redis.call('HSET', X.key, 'd:' .. count[1], count[2]) end
  for _, output in ipairs(outputs) do redis.call('HSET', X.key, 'o:' .. output[1], output[2]) end
  if header then
    begin(P, X, header)
    return 'opened'
  end
  redis.call('PEXPIRE', X.key, ttl_ms)
  return 'filled'
end

local function open(keys, args)
  local P = open_partition(keys)
  local ttl_ms, slices = unpack(cmsgpack.unpack(args[1]))
  for _, slice in ipairs(slices) do load(P, slice[1]) end
  local answers = {}
  for i, slice in ipairs(slices) do answers[i] = open_one(P, slice, ttl_ms) end
  flush(P)
  return answers
end
