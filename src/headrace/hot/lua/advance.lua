-- advance: applies hints. The caller has decided what a failure means (retry, or final); this is where it takes effect.
-- Takes   of each hint: the id of its entry, execution, epoch, run, node, attempt, verdict, body, delay in ms, flag, offset, total,
--         quiet, number of names, and then of each of these nodes: name, number of parents, handler, and which
--         argument is its task, or 0. The tasks are further arguments.
--   verdict 'S' start of a run        names: nodes that may be ready
--           'C' the attempt succeeded body: output; names: children
--           'T' try again after delay body: the failure; flag: the lease was lost (counted apart)
--           'F' failed for good       body: the failure
--           'K' go on skipping        names: children of nodes that were skipped
--           'N' the caller cannot tell what follows: acknowledged only if the execution is another's by now
--   T and F with on_failure: continue: names: children, which a final failure skips
--   offset, total: the names are a slice of a longer list; quiet: all hints of the entry are in this call, one behind the
--   other, and none of them was in an earlier one
-- Guard   mine, the attempt fits; a REPORTED node of a RUNNING or FAILED execution takes the verdict, once, with the
--         first slice (only that one brings the body); children are counted only from the cursor in the node's record,
--         which moves with the counts, so a replay goes on where it stopped; nothing is counted or skipped once the
--         execution is not RUNNING. A child with one parent needs no count: that it is within the cursor is enough.
-- Effect  besides: a node that is ready, has its task with it and was never tried is dispatched in the same step, exactly
--         as `dispatch` would right after (push.lua). It is not answered, for nothing is left to do with it.
-- Answers one flat list, of each hint: nothing is left to do with it, number of nodes, and so many pairs of a position in the slice and
--         that node's attempt so far. The nodes are those that are ready AND still PENDING (S, C); or those that are
--         skipped on behalf of this failed node (T, F, K), which a skipped node's record remembers as its worker, so
--         that of many failures above a node one alone goes on below it. On every replay the answer is the same, or
--         what is left of it. An entry is acknowledged here only when nothing is left to do with all of its hints.

local function answer_skipped(P, X, owner, items, first, count, replies)
  local found, names = 0, {}
  for i = 1, count do
    local name = items[first + 4 * i - 4]
    if X.nodes[name] == nil then names[#names + 1] = name end
  end
  if #names > 0 then read_fields(X, names) end
  for i = 1, count do
    local name = items[first + 4 * i - 4]
    local nd = unpack_node(read_node(X, name))
    if nd[STATE] == NODE.PENDING then
      move(nd, NODE.SKIPPED)
      nd[WORKER] = owner
      write_node(P, X, name, pack_node(nd))
      X.left = X.left - 1
      record(X, name, NODE.SKIPPED, nd[ATTEMPT], owner)
    end
    if nd[STATE] == NODE.SKIPPED and nd[WORKER] == owner then
      found = found + 1
      replies[#replies + 1] = i
      replies[#replies + 1] = 0
    end
  end
  if X.left == 0 then finish(P, X, EXECUTION.FAILED) end
  return found
end

-- The verdict on a REPORTED node: try again, or failed. -> its state
local function fail(P, X, name, nd, verdict, failure, delay_ms, lease_lost)
  local running = X.status == EXECUTION.RUNNING
  X.busy = X.busy - 1
  nd[ERROR] = failure
  if verdict == 'T' and running then
    move(nd, NODE.RETRYING)
    local counter = lease_lost and LOST or RETRIES
    nd[counter] = nd[counter] + 1
    set_timer(P, P.now + delay_ms, timer('T', X, name, nd[ATTEMPT]))
    record(X, name, NODE.RETRYING, nd[ATTEMPT], format('%.0f ', P.now + delay_ms) .. failure)
  else
    move(nd, NODE.FAILED)
    X.left, X.failed = X.left - 1, X.failed + 1
    record(X, name, NODE.FAILED, nd[ATTEMPT], failure)
    if not X.error then X.error, X.error_node = failure, name end
    if running and (X.mode == 'f' or X.left == 0) then finish(P, X, EXECUTION.FAILED) end
  end
  write_node(P, X, name, pack_node(nd))
  return nd[STATE]
end

-- What is left to do with a hint of an attempt: -> nodes answered, whether that was all
local function follow(P, X, items, at, first, count, replies, args)
  local name, verdict, offset, total = items[at + 4], items[at + 6], items[at + 10], items[at + 11]
  local raw = read_node(X, name)
  local state, attempt = node_head(raw)
  if attempt ~= items[at + 5] then return 0, true end
  local found, over, cursor = 0, true, nil
  if state == NODE.REPORTED and verdict ~= 'K' and offset == 0
     and (X.status == EXECUTION.RUNNING or X.status == EXECUTION.FAILED) then
    if verdict == 'C' then
      state, cursor = NODE.COMPLETED, succeed(P, X, name, attempt, items[at + 7], total)
    else
      state = fail(P, X, name, unpack_node(raw), verdict, items[at + 7], items[at + 8], items[at + 9])
    end
  end
  if X.status == EXECUTION.RUNNING and state == NODE.COMPLETED then
    local stood = cursor or cursor_of(raw)
    over = offset + count >= total
    if stood < offset then
      over = false                                                         -- a slice that left some out: not counted
    else
      found = answer_ready(P, X, items, first, count, stood - offset, replies, args)
      if stood < offset + count then cursor = offset + count end
    end
  elseif X.status == EXECUTION.RUNNING and state == NODE.FAILED then
    over = offset + count >= total
    found = answer_skipped(P, X, name, items, first, count, replies)
  end
  if cursor then write_node(P, X, name, as_completed(raw, cursor)) end
  return found, over
end

local function advance(keys, args)
  local P = open_partition(keys)
  local items = from_msgpack(args[1])
  local at, last, nodes = 1, #items, {}
  while at <= last do
    local found = #nodes
    nodes[found + 1], nodes[found + 2] = items[at + 1], items[at + 4]
    at = at + 14 + 4 * items[at + 13]
  end
  load_all(P, nodes, 2, 1, 1)
  local replies, acknowledged = {}, {}
  local entry, all_over
  at = 1
  while at <= last do
    local first, count, verdict = at + 14, items[at + 13], items[at + 6]
    local reply = #replies
    replies[reply + 1], replies[reply + 2] = 0, 0
    local X = mine(P, items[at + 1], items[at + 2], items[at + 3])
    local found, over = 0, true
    if items[at] ~= entry then
      if all_over then acknowledged[#acknowledged + 1] = entry end
      entry, all_over = items[at], true
    end
    if X and verdict == 'N' then
      over = false
    elseif X and verdict == 'S' then
      if X.status == EXECUTION.RUNNING then
        found = answer_ready(P, X, items, first, count, -1, replies, args)
        over = items[at + 10] + count >= items[at + 11]
      end
    elseif X then
      found, over = follow(P, X, items, at, first, count, replies, args)
    end
    over = over and found == 0 and items[at + 12]
    replies[reply + 1], replies[reply + 2] = over and 1 or 0, found
    all_over = all_over and over
    at = first + 4 * count
  end
  if all_over then acknowledged[#acknowledged + 1] = entry end
  flush(P)
  acknowledge(P, acknowledged)
  return to_msgpack(replies)
end
