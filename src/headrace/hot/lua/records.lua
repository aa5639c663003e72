-- The records of an execution and of its nodes: how they are packed, read, moved and written.

-- An execution is one hash. '@m' holds its record: format, status, mode, has a deadline, run, nodes left, attempts under
-- way, nodes failed, events so far, epoch (of an OPENING one: its token), last event, definition hash.
local EXECUTION_RECORD = '<c1c1c1c1IIIIIsss'

-- A field with a node's name holds its record: state, attempt, retries, lost leases, cursor, queued at, started at,
-- finished at, worker; behind it the last failure, as it is. An absent one is PENDING with nothing behind it.
-- 'd:<node>' holds how many of its parents are done, 'o:<node>' its output.
-- It is kept as it is and changed in its places; only what happens rarely takes it apart (unpack_node, pack_node).
local NODE_RECORD = '<c1IIIIddds'
local NODE_HEAD, RETRIES_AND_LOST = '<c1I', '<II'
local STATE, ATTEMPT, RETRIES, LOST, CURSOR, QUEUED_AT, STARTED_AT, FINISHED_AT, WORKER, ERROR = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10

local function refuse_format(id, format)
  error({err = 'FORMAT execution ' .. id .. ' has format ' .. tostring(format) .. ', this library has ' .. FORMAT})
end

-- -> state, attempt
local function node_head(raw)
  if not raw then return NODE.PENDING, 0 end
  return struct_unpack(NODE_HEAD, raw)
end

local function unpack_node(raw)
  if not raw then return {NODE.PENDING, 0, 0, 0, 0, 0, 0, 0, '', ''} end
  local nd = {struct_unpack(NODE_RECORD, raw)}
  nd[ERROR] = sub(raw, nd[ERROR])                                   -- unpack ends with the position behind it
  return nd
end

local function pack_node(nd)
  return struct_pack(NODE_RECORD, nd[STATE], nd[ATTEMPT], nd[RETRIES], nd[LOST], nd[CURSOR], nd[QUEUED_AT], nd[STARTED_AT],
                     nd[FINISHED_AT], nd[WORKER]) .. nd[ERROR]
end

local function check_move(from, to)
  if not NODE_MOVES[from][to] then error({err = 'TRANSITION of a node ' .. from .. ' to ' .. to}) end
end

local function move(nd, to)
  check_move(nd[STATE], to)
  nd[STATE] = to
end

-- What happens to most nodes, in the places of NODE_RECORD. A QUEUED one has no worker and no failure.
local function as_claimed(state, raw, now_packed, worker)
  check_move(state, NODE.RUNNING)
  return NODE.RUNNING .. sub(raw, 2, 25) .. now_packed .. sub(raw, 34, 41) .. worker .. '\0'
end

local function as_reported(state, raw, now_packed)
  check_move(state, NODE.REPORTED)
  return NODE.REPORTED .. sub(raw, 2, 33) .. now_packed .. sub(raw, 42)
end

local function cursor_of(raw)
  return (struct_unpack('<I', raw, 14))
end

local function as_completed(raw, cursor)
  return NODE.COMPLETED .. sub(raw, 2, 13) .. PACKED[cursor] .. sub(raw, 18)
end

-- Of a node that was never tried, under its first attempt.
local function as_first_queued(now_packed)
  return NODE.QUEUED .. PACKED[1] .. PACKED[0] .. PACKED[0] .. PACKED[0] .. now_packed .. struct_pack('<dds', 0, 0, '')
end

-- The execution, or false. One of another format is refused; `lenient` answers nil for it. With a node's name, that
-- node is read with it, and so are `more` of them.
local function load(P, id, lenient, name, more)
  local X = P.executions[id]
  if X ~= nil then return X end
  local key, raw, nodes = P.execution_prefix .. id, nil, nil
  if more then
    local found = call('HMGET', key, '@m', name, unpack(more))
    raw, nodes = found[1], {[name] = found[2]}
    for i = 1, #more do nodes[more[i]] = found[i + 2] end
  elseif name then
    local found = call('HMGET', key, '@m', name)
    raw, nodes = found[1], {[name] = found[2]}
  else
    raw, nodes = call('HGET', key, '@m'), {}
  end
  if not raw then P.executions[id] = false return false end
  local format, status, mode, deadline, run, left, busy, failed, seq, epoch, last, definition =
    struct_unpack(EXECUTION_RECORD, raw)
  if format ~= FORMAT then
    if lenient then return nil end
    refuse_format(id, format)
  end
  X = {id = id, key = key, status = status, mode = mode, deadline = deadline, run = run, left = left, busy = busy,
       failed = failed, seq = seq, epoch = epoch, last = last, definition = definition, nodes = nodes, fields = false,
       changes = false}                                                    -- 16 fields; more would double the table
  P.executions[id] = X
  return X
end

-- Reads the executions named in a flat list of items; `name`: how far behind the execution its node stands. Items of
-- one execution often follow each other: their nodes are read at once.
local function load_all(P, items, width, at, name, lenient)
  local last = #items
  while at <= last do
    local id, after, more = items[at], at + width, nil
    while name and items[after] == id and after - at <= 1000 * width do
      if more then more[#more + 1] = items[after + name] else more = {items[after + name], nil, nil} end
      after = after + width
    end
    load(P, id, lenient, name and items[at + name], more)
    at = after
  end
end

-- Of the executions that were read, the one that is open with exactly this run and epoch.
local function mine(P, id, epoch, run)
  local X = P.executions[id]
  if X and X.status ~= EXECUTION.OPENING and X.epoch == epoch and X.run == run then return X end
end

-- The execution, if it is mine and attempts of it may still end: it is RUNNING, or FAILED with some under way.
local function mine_alive(P, id, epoch, run)
  local X = mine(P, id, epoch, run)
  if X and (X.status == EXECUTION.RUNNING or X.status == EXECUTION.FAILED) then return X end
end

-- A node's record, or false: PENDING with nothing behind it.
local function read_node(X, name)
  local raw = X.nodes[name]
  if raw == nil then
    raw = call('HGET', X.key, name)
    X.nodes[name] = raw
  end
  return raw
end

-- What `flush` is to write: a field of the execution's hash, or a node's new record.
local function write_field(P, X, field, value)
  local fields = X.fields
  if fields then
    local count = #fields
    fields[count + 1], fields[count + 2] = field, value
  else
    X.fields = {field, value, nil, nil}                                    -- room for two more: a table grows slowly
    P.order[#P.order + 1] = X
  end
end

local function write_node(P, X, name, raw)
  X.nodes[name] = raw
  write_field(P, X, name, raw)
end

-- As EXECUTION_RECORD says; `struct` would take twice as long.
local function pack_execution(X)
  return FORMAT .. X.status .. X.mode .. X.deadline .. PACKED[X.run] .. PACKED[X.left] .. PACKED[X.busy] ..
         PACKED[X.failed] .. PACKED[X.seq] .. X.epoch .. '\0' .. X.last .. '\0' .. X.definition .. '\0'
end

local function pack_reservation(run, token)
  return FORMAT .. EXECUTION.OPENING .. '--' .. PACKED[run] .. PACKED[0] .. PACKED[0] .. PACKED[0] .. PACKED[0] ..
         token .. '\0\0\0'
end
