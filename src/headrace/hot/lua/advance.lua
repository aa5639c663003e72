-- advance: applies hints. The caller has decided what a failure means (retry, or final); this is where it takes effect.
-- Takes   of each hint: its id, execution, epoch, run, node, attempt, verdict, body, delay in ms, flag, offset, total,
--         quiet, number of names, and then so many pairs of a node's name and its number of parents
--   verdict 'S' start of a run        names: nodes that may be ready
--           'C' the attempt succeeded body: output; names: children
--           'T' try again after delay body: the failure; flag: the lease was lost (counted apart)
--           'F' failed for good       body: the failure
--           'K' go on skipping        names: children of nodes that were skipped
--           'N' the caller cannot tell what follows: acknowledged only if the execution is another's by now
--   T and F with on_failure: continue: names: children, which a final failure skips
--   offset, total: the names are a slice of a longer list; quiet: no earlier slice of this hint had an answer
-- Guard   mine, the attempt fits; a REPORTED node of a RUNNING or FAILED execution takes the verdict, once, with the
--         first slice (only that one brings the body); children are counted only from the cursor in the node's record,
--         which moves with the counts, so a replay goes on where it stopped; nothing is counted or skipped once the
--         execution is not RUNNING. A child with one parent needs no count: that it is within the cursor is enough.
-- Answers one flat list, of each hint: acknowledged, number of nodes, and so many pairs of a position in the slice and
--         that node's attempt so far. The nodes are those that are ready AND still PENDING (S, C); or those that are
--         skipped on behalf of this failed node (T, F, K), which a skipped node's record remembers as its worker, so
--         that of many failures above a node one alone goes on below it. On every replay the answer is the same, or
--         what is left of it. A hint is acknowledged here only when nothing is left to do with it.

-- The packed records of nodes that this call has not read yet, by name.
local function read_packed(X, items, first, count)
  local names, found = {}, {}
  for i = first, first + 2 * count - 2, 2 do
    if not X.nodes[items[i]] then names[#names + 1] = items[i] end
  end
  if #names == 1 then
    found[names[1]] = redis.call('HGET', X.key, names[1])
  elseif #names > 1 then
    local records = redis.call('HMGET', X.key, unpack(names))
    for i, name in ipairs(names) do found[name] = records[i] end
  end
  return found
end

-- `counted`: how many of the slice were counted before this call; -1 when nothing is to be counted.
local function answer_ready(X, items, first, count, counted, replies)
  local found = 0
  local packed = read_packed(X, items, first, count)
  for i = 1, count do
    local name, parents = items[first + 2 * i - 2], items[first + 2 * i - 1]
    local done = parents
    if counted >= 0 and parents > 1 then
      done = i > counted and redis.call('HINCRBY', X.key, 'd:' .. name, 1)
             or tonumber(redis.call('HGET', X.key, 'd:' .. name) or 0)
    elseif counted < 0 and parents > 0 then
      done = tonumber(redis.call('HGET', X.key, 'd:' .. name) or 0)
    end
    if done == parents then
      local nd = X.nodes[name] or packed[name] and unpack_node(packed[name])
      if not nd or nd[STATE] == NODE.PENDING then
        found = found + 1
        replies[#replies + 1] = i
        replies[#replies + 1] = nd and nd[ATTEMPT] or 0
      end
    end
  end
  return found
end

local function answer_skipped(P, X, owner, items, first, count, replies)
  local found = 0
  local packed = read_packed(X, items, first, count)
  for i = 1, count do
    local name = items[first + 2 * i - 2]
    local nd = X.nodes[name] or unpack_node(packed[name])
    if nd[STATE] == NODE.PENDING then
      X.nodes[name] = nd
      move(nd, NODE.SKIPPED)
      nd[WORKER] = owner
      write_node(P, X, name)
      X.left = X.left - 1
      record(P, X, name, nd, owner)
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

-- The verdict on a REPORTED node. Where the execution is no longer RUNNING, a success is recorded and moves nobody.
local function apply(P, X, name, nd, verdict, body, delay_ms, lease_lost, total)
  local running = X.status == EXECUTION.RUNNING
  X.busy = X.busy - 1
  if verdict == 'C' then
    move(nd, NODE.COMPLETED)
    nd[CURSOR] = running and 0 or total
    write_field(P, X, 'o:' .. name, body)
    X.left = X.left - 1
    record(P, X, name, nd, body)
    if running and X.left == 0 then finish(P, X, X.failed > 0 and EXECUTION.FAILED or EXECUTION.COMPLETED) end
    return
  end
  nd[ERROR] = body
  if verdict == 'T' and running then
    move(nd, NODE.RETRYING)
    local counter = lease_lost and LOST or RETRIES
    nd[counter] = nd[counter] + 1
    set_timer(P, P.now + delay_ms, timer('T', X, name, nd[ATTEMPT]))
    record(P, X, name, nd, string.format('%.0f ', P.now + delay_ms) .. body)
    return
  end
  move(nd, NODE.FAILED)
  X.left, X.failed = X.left - 1, X.failed + 1
  record(P, X, name, nd, body)
  if not X.error then X.error, X.error_node = body, name end
  if running and (X.mode == 'f' or X.left == 0) then finish(P, X, EXECUTION.FAILED) end
end

-- What is left to do with a hint of an attempt: -> nodes answered, whether that was all
local function follow(P, X, items, at, first, count, replies)
  local name, verdict, offset, total = items[at + 4], items[at + 6], items[at + 10], items[at + 11]
  local nd = read_node(X, name)
  if nd[ATTEMPT] ~= items[at + 5] then return 0, true end
  local changed, found, over = false, 0, true
  if nd[STATE] == NODE.REPORTED and verdict ~= 'K' and offset == 0
     and (X.status == EXECUTION.RUNNING or X.status == EXECUTION.FAILED) then
    changed = true
    apply(P, X, name, nd, verdict, items[at + 7], items[at + 8], items[at + 9], total)
  end
  if X.status == EXECUTION.RUNNING and nd[STATE] == NODE.COMPLETED then
    local cursor = nd[CURSOR]
    over = offset + count >= total
    if cursor < offset then
      over = false                                                         -- a slice that left some out: not counted
    else
      found = answer_ready(X, items, first, count, cursor - offset, replies)
      if cursor < offset + count then nd[CURSOR], changed = offset + count, true end
    end
  elseif X.status == EXECUTION.RUNNING and nd[STATE] == NODE.FAILED then
    over = offset + count >= total
    found = answer_skipped(P, X, name, items, first, count, replies)
  end
  if changed then write_node(P, X, name) end
  return found, over
end

local function advance(keys, args)
  local P = open_partition(keys)
  local items = cmsgpack.unpack(args[1])
  local at = 1
  while at <= #items do
    load(P, items[at + 1], false, items[at + 4])
    at = at + 14 + 2 * items[at + 13]
  end
  local replies, acknowledged = {}, {}
  at = 1
  while at <= #items do
    local first, count, verdict = at + 14, items[at + 13], items[at + 6]
    local reply = #replies
    replies[reply + 1], replies[reply + 2] = 0, 0
    local X = mine(P, items[at + 1], items[at + 2], items[at + 3])
    local found, over = 0, true
    if X and verdict == 'N' then
      over = false
    elseif X and verdict == 'S' then
      if X.status == EXECUTION.RUNNING then
        found = answer_ready(X, items, first, count, -1, replies)
        over = items[at + 10] + count >= items[at + 11]
      end
    elseif X then
      found, over = follow(P, X, items, at, first, count, replies)
    end
    over = over and found == 0 and items[at + 12]
    replies[reply + 1], replies[reply + 2] = over and 1 or 0, found
    if over then acknowledged[#acknowledged + 1] = items[at] end
    at = first + 2 * count
  end
  flush(P)
  acknowledge(P, acknowledged)
  return cmsgpack.pack(replies)
end
