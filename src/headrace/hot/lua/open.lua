-- open: the second half of opening. Large executions are filled in slices; the last slice opens.
-- Takes   {ttl of the reservation in ms, slices {execution, token, rows {node, state, attempt, retries, lost, cursor,
--          queued at, started at, finished at, worker, error}, counts {node, parents done}, outputs {node, output},
--          header or nil, roots {node, handler, which argument is its task}}}, and then tasks; the header is there in
--          the last slice:
--         {run, definition hash, mode, nodes left, nodes failed, created or 0, timeout of the execution in ms or 0,
--          cancelled, start ('roots' for a fresh run, else 'all')}
-- Allowed if the execution is OPENING with this token, and the definition is in the store.
-- Effect  the slice is written; with the header: RUNNING, a start hint (or, where the roots have their tasks with them,
--         all of these QUEUED), the deadline's timer, an event; or, when it was cancelled or nothing is left to do, ended
--         at once with its event.
-- Answers of each 'filled', 'opened', 'already' (a repeated call), 'gone' (not OPENING with this token),
--         'no definition'.
local function begin(P, X, header, roots, args)
  local run, definition, mode, left, failed, created, timeout_ms, cancelled, start = unpack(header, 1, 9)
  call('PERSIST', X.key)
  P.opened[definition] = P.opened[definition] + 1
  X.run, X.definition, X.mode, X.left, X.failed = run, definition, sub(mode, 1, 1), left, failed
  X.status = EXECUTION.RUNNING
  tell(X, EXECUTION.RUNNING)
  write_field(P, X, '@created', created > 0 and TEXT[created] or P.now_text)
  write_field(P, X, '@started', P.now_text)
  if cancelled then
    finish(P, X, EXECUTION.CANCELLED)
  elseif left == 0 then
    finish(P, X, failed > 0 and EXECUTION.FAILED or EXECUTION.COMPLETED)
  else
    for i = 1, #roots, 3 do
      queue_node(P, X, roots[i], false, roots[i + 1], args[roots[i + 2]])
    end
    if #roots == 0 then queue_hint(P, X, token(X, '', 0), false, start) end
    if timeout_ms > 0 then
      X.deadline = 'd'
      set_timer(P, P.now + timeout_ms, timer('X', X, '', 0))
    end
  end
end

-- Whether the definition is in the store; P.opened counts how many executions of it this call opens.
local function is_held(P, definition)
  local opened = P.opened
  if opened[definition] == nil then
    opened[definition] = call('EXISTS', P.prefix .. 'def:' .. definition) == 1 and 0
  end
  return opened[definition]
end

local function open_one(P, slice, ttl_ms, args)
  local id, new, rows, counts, outputs, header, roots = unpack(slice, 1, 7)
  local X = load(P, id)
  if not X or X.epoch ~= new then return 'gone' end
  if X.status ~= EXECUTION.OPENING then return 'already' end
  if header and not is_held(P, header[2]) then return 'no definition' end
  for _, row in ipairs(rows) do
    local name = table.remove(row, 1)
    call('HSET', X.key, name, pack_node(row))
  end
  for _, count in ipairs(counts) do call('HSET', X.key, 'd:' .. count[1], count[2]) end
  for _, output in ipairs(outputs) do write_field(P, X, 'o:' .. output[1], output[2]) end
  if header then
    begin(P, X, header, roots, args)
    return 'opened'
  end
  call('PEXPIRE', X.key, ttl_ms)
  return 'filled'
end

local function open(keys, args)
  local P = open_partition(keys)
  local ttl_ms, slices = unpack(from_msgpack(args[1]))
  for _, slice in ipairs(slices) do load(P, slice[1]) end
  P.opened = {}
  local answers = {}
  for i, slice in ipairs(slices) do answers[i] = open_one(P, slice, ttl_ms, args) end
  flush(P)
  for definition, count in pairs(P.opened) do
    if count and count > 0 then
      call('PERSIST', P.prefix .. 'def:' .. definition)
      call('HINCRBY', P.defs, definition, count)
    end
  end
  return answers
end
