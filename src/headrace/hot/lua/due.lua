-- due: what time has brought.
-- Takes   {most timers to look at, lease in ms}
-- Retry   mine, RUNNING, the node RETRYING and the attempt fits: answered for rendering and scored 5 s ahead, so that
--         only `dispatch` removes it; else removed.
-- Lease   removed; mine, RUNNING or FAILED, the node RUNNING and the attempt fits: REPORTED, "worker lost" to results.
-- Deadline of an execution: removed; mine and RUNNING: FAILED.
-- Gap     when `due` itself was away for longer than a lease (the store or all orchestrators were), nobody could renew:
--         until one lease from now, leases that run out are given that time once more.
-- A timer of an execution of another format is scored 5 s ahead, for those who know the format.
-- Answers {retries {execution, epoch, run, node, attempt, definition hash}, whether more is due}.
local LOST_OUTCOME = '{"failure":{"code":"worker_lost","message":"the worker was lost: its lease ran out","retryable":true}}'
local LATE = '{"code":"timeout","message":"the execution took longer than its timeout_seconds"}'
local AHEAD_MS = 5000

-- Until when leases that run out are given more time.
local function grace_until(P, lease_ms)
  local seen, grace = unpack(call('HMGET', P.meta, 'due', 'grace'))
  call('HSET', P.meta, 'due', P.now)
  if seen and P.now - tonumber(seen) > lease_ms then
    call('HSET', P.meta, 'grace', P.now + lease_ms)
    return P.now + lease_ms
  end
  return tonumber(grace or 0)
end

local function due_one(P, member, grace, retries)
  local kind, id, epoch, run, name, attempt = match(member, '^(%u)|([^|]*)|([^|]*)|(%d+)|([^|]*)|(%d+)$')
  if load(P, id, true) == nil then return set_timer(P, P.now + AHEAD_MS, member) end
  attempt = tonumber(attempt)
  local X = mine_alive(P, id, epoch, tonumber(run))
  local running = X and X.status == EXECUTION.RUNNING
  local raw = X and kind ~= 'X' and read_node(X, name)
  local state, present = node_head(raw)
  if present ~= attempt then state = nil end
  if kind == 'T' and running and state == NODE.RETRYING then
    set_timer(P, P.now + AHEAD_MS, member)
    retries[#retries + 1] = {id, epoch, X.run, name, attempt, X.definition}
    return
  end
  if kind == 'L' and P.now < grace then return set_timer(P, grace, member) end
  stop_timer(P, member)
  if kind == 'L' and state == NODE.RUNNING then
    write_node(P, X, name, as_reported(state, raw, P.now_packed))
    queue_hint(P, X, sub(member, 3), raw, LOST_OUTCOME)
  elseif kind == 'X' and running then
    finish(P, X, EXECUTION.FAILED, LATE)
  end
end

local function due(keys, args)
  local P = open_partition(keys)
  local most, lease_ms = unpack(from_msgpack(args[1]))
  local grace = grace_until(P, lease_ms)
  local members = call('ZRANGE', P.timers, '-inf', P.now, 'BYSCORE', 'LIMIT', 0, most)
  local retries = {}
  for _, member in ipairs(members) do due_one(P, member, grace, retries) end
  flush(P)
  return to_msgpack({retries, #members == most})
end
