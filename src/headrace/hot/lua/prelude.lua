-- What every function shares: the partition's keys, the record of an execution, the record of a node, events, timers.
-- FORMAT, DECLARED, RESULTS_GROUP, NODE, EXECUTION and the two tables of transitions are generated above this line.
--
-- A function works on one partition. It first reads the executions that its arguments name (`load_all`), so that
-- whatever refuses to be read does so before anything is written; then it changes nodes; `flush` writes each changed
-- execution once, with ONE event that holds all changes of its nodes and of itself that this call made.
--
-- Batches come as one flat MessagePack list, and records are packed with `struct`: small tables are what costs most in
-- Lua, and then calls of functions. What only travels through (payloads, outcomes, outputs, errors) is never looked into.

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

-- What the server offers, as locals: a global is looked up by name each time. It is there only once a function runs.
local call, from_msgpack, to_msgpack, unpack_limit, struct_pack, struct_unpack, match, sub, format, floor, min, concat

-- Numbers as text and packed; the small ones are kept, since Lua's own way is slow.
local TEXT, PACKED = {}, {}

-- What a task's message begins with: execution, epoch, run, node, attempt, as the first elements of a MessagePack list.
local function read_token(message)
  local _, id, epoch, run, name, attempt = unpack_limit(message, 5, 1)
  return id, epoch, run, name, attempt
end

local function learn()
  call, from_msgpack, to_msgpack, unpack_limit = redis.call, cmsgpack.unpack, cmsgpack.pack, cmsgpack.unpack_limit
  struct_pack, struct_unpack = struct.pack, struct.unpack
  match, sub, format, floor, min = string.match, string.sub, string.format, math.floor, math.min
  concat = table.concat
  for i = 0, 999 do TEXT[i], PACKED[i] = format('%d', i), struct_pack('<I', i) end
  setmetatable(TEXT, {__index = function(_, number) return format(number < 2147483648 and '%d' or '%.0f', number) end})
  setmetatable(PACKED, {__index = function(_, number) return struct_pack('<I', number) end})
end

local function open_partition(keys)
  if not call then learn() end
  local P = {executions = {}, order = {}, tasks = {}, hints = {}, stopped = {}, set = {}}
  for i, name in ipairs(DECLARED) do P[name] = keys[i] end
  P.prefix = sub(keys[1], 1, -5)                                           -- "...meta" without "meta"
  P.execution_prefix = P.prefix .. 'x:'
  local t = call('TIME')
  P.now = t[1] * 1000 + floor(t[2] / 1000)
  P.now_text, P.now_packed = TEXT[P.now], struct_pack('<d', P.now)
  return P
end

-- Whether this server, since it started, has been found not to be older than the record (settle.lua). What is known in
-- this life of the server is kept here, which ends with it.
local this_server
local settled = {}

local function server_id()
  this_server = this_server or match(call('INFO', 'server'), 'run_id:(%x+)')
  return this_server
end

local function is_settled(P)
  if not settled[P.prefix] and call('HGET', P.meta, 'settled') == server_id() then settled[P.prefix] = true end
  return settled[P.prefix]
end

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

-- A change of a node, for the event: letter of the state, attempt, and what belongs to it. Whoever records also writes.
local function record(X, name, state, attempt, more)
  local change = state .. TEXT[attempt] .. ' ' .. more
  local changes = X.changes
  if changes then
    local count = #changes
    changes[count + 1], changes[count + 2] = name, change
  else
    X.changes = {'', name, change}
  end
end

-- The news of an execution: its new status. Until `flush` it stands where the event's header will.
local function tell(X, status)
  local changes = X.changes
  if changes then changes[1] = status else X.changes = {status} end
end

local function token(X, name, attempt)
  return X.id .. '|' .. X.epoch .. '|' .. TEXT[X.run] .. '|' .. name .. '|' .. TEXT[attempt]
end

local function timer(kind, X, name, attempt)
  return kind .. '|' .. token(X, name, attempt)
end

-- Timers are set and stopped by `flush`, all of a call at once.
local function set_timer(P, at, member)
  local set = P.set
  local count = #set
  set[count + 1], set[count + 2] = at, member
end

local function stop_timer(P, member)
  P.stopped[#P.stopped + 1] = member
end

local function finish(P, X, to, err)
  if not EXECUTION_MOVES[X.status][to] then error({err = 'TRANSITION of an execution ' .. X.status .. ' to ' .. to}) end
  X.status = to
  if err then X.error = X.error or err end
  tell(X, to)
  write_field(P, X, '@finished', P.now_text)
  if X.deadline == 'd' then stop_timer(P, timer('X', X, '', 0)) end
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

-- An entry of a stream is one text, since each field of it would cost as much as what it holds. Neither JSON nor a name
-- can contain what stands between its parts.
local BETWEEN_SECTIONS, BETWEEN_PARTS = '\29', '\30'

-- Of the outbox: a section of each execution, and in it its header, and then pairs of a node and its change.
local function write_events(P, sections, whose)
  local id = call('XADD', P.events, '*', 'e', concat(sections, BETWEEN_SECTIONS))
  for i = 1, #whose do
    local X = whose[i]
    X.last = id
    write_field(P, X, '@m', pack_execution(X))
  end
end

local function flush_events(P)
  local sections, whose, size = {}, {}, 0
  for i = 1, #P.order do
    local X = P.order[i]
    local changes = X.changes
    if changes then
      local count = #changes
      if size > 0 and size + count > 4000 then
        write_events(P, sections, whose)
        sections, whose, size = {}, {}, 0
      end
      X.seq = X.seq + 1
      changes[1] = X.id .. '|' .. X.epoch .. '|' .. TEXT[X.run] .. '|' .. TEXT[X.seq] .. '|' .. X.last .. '|' .. P.now_text .. '|' ..
                   changes[1] .. '|' .. (X.error or '')
      size = size + count
      whose[#whose + 1] = X
      sections[#whose] = concat(changes, BETWEEN_PARTS)
    end
  end
  if size > 0 then write_events(P, sections, whose) end
end

local function flush_execution(P, X)
  local fields = X.fields
  local count = #fields
  if count <= 4000 then
    call('HSET', X.key, unpack(fields))
  else
    for from = 1, count, 4000 do call('HSET', X.key, unpack(fields, from, min(from + 3999, count))) end
  end
  if X.error and call('HSETNX', X.key, '@error', X.error) == 1 and X.error_node then
    call('HSET', X.key, '@error_node', X.error_node)
  end
end

local function ring(P, handler)
  call('XADD', P.prefix .. 'bell:' .. handler, 'MAXLEN', 1, '*', 't', P.now_text)
end

-- Of each handler all tasks of a call go to the end of its list at once. Idle workers sleep on the bell, which rings when
-- the list was empty.
local function flush_tasks(P)
  for handler, messages in pairs(P.tasks) do
    local list, count, length = P.prefix .. 'tasks:' .. handler, #messages, 0
    for from = 1, count, 4000 do length = call('RPUSH', list, unpack(messages, from, min(from + 3999, count))) end
    if length == count then
      call('SADD', P.queues, handler)
      ring(P, handler)
    end
  end
end

-- The hints of a call, several in one entry, which is the unit that an orchestrator takes and acknowledges: pairs of whose
-- it is and the outcome.
local HINTS_TOGETHER, HINT_BYTES = 64, 65536

local function flush_hints(P)
  local hints, first, size = P.hints, 1, 0
  local count = #hints
  for i = 2, count, 2 do
    size = size + #hints[i]
    if i == count or i - first + 1 >= 2 * HINTS_TOGETHER or size >= HINT_BYTES then
      call('XADD', P.results, '*', 'h', concat(hints, BETWEEN_PARTS, first, i))
      first, size = i + 1, 0
    end
  end
end

-- Writes what this call has changed: the events, which give each execution its last event and with it a new record; the
-- executions; the tasks, the hints, the timers. Whoever changes an execution's record without an event writes it himself
-- (count_under_way).
local function flush(P)
  flush_events(P)
  for i = 1, #P.order do flush_execution(P, P.order[i]) end
  flush_tasks(P)
  flush_hints(P)
  for from = 1, #P.stopped, 4000 do
    call('ZREM', P.timers, unpack(P.stopped, from, min(from + 3999, #P.stopped)))
  end
  for from = 1, #P.set, 4000 do
    call('ZADD', P.timers, unpack(P.set, from, min(from + 3999, #P.set)))
  end
end

-- An attempt that is under way without an event that tells of it.
local function count_under_way(P, X)
  X.busy = X.busy + 1
  write_field(P, X, '@m', pack_execution(X))
end

-- `message` is what `claim` hands to a worker: a packed Task, which begins with its token.
local function queue_task(P, handler, message)
  local tasks = P.tasks[handler]
  if tasks then tasks[#tasks + 1] = message else P.tasks[handler] = {message} end
end

-- A node that is PENDING or RETRYING goes to the workers under its next attempt.
local function queue_node(P, X, name, raw, handler, message)
  local attempt = 1
  if raw then
    local nd = unpack_node(raw)
    check_move(nd[STATE], NODE.QUEUED)
    attempt = nd[ATTEMPT] + 1
    nd[STATE], nd[ATTEMPT], nd[QUEUED_AT], nd[STARTED_AT], nd[FINISHED_AT] = NODE.QUEUED, attempt, P.now, 0, 0
    nd[WORKER], nd[ERROR] = '', ''
    write_node(P, X, name, pack_node(nd))
  else
    P.first_queued = P.first_queued or as_first_queued(P.now_packed)
    write_node(P, X, name, P.first_queued)
  end
  queue_task(P, handler, message)
  record(X, name, NODE.QUEUED, attempt, '')
end

-- A hint to the orchestrators: the outcome of the attempt with this token, or with an empty node the start of a run.
-- How often its node was retried and lost is in `raw`.
local function queue_hint(P, X, whose, raw, outcome)
  local hints = P.hints
  local count = #hints
  local retries, lost = 0, 0
  if raw then retries, lost = struct_unpack(RETRIES_AND_LOST, raw, 6) end
  hints[count + 1] = whose .. '|' .. X.definition .. '|' .. TEXT[retries] .. '|' .. TEXT[lost]
  hints[count + 2] = outcome
end

-- Hints are acknowledged, and the head of the stream that nobody needs any more is cut off: all that was delivered, or
-- what lies before the oldest pending hint. Cutting the head is far cheaper than deleting entry by entry.
local function acknowledge(P, hints)
  if #hints == 0 then return end
  for from = 1, #hints, 1000 do
    call('XACK', P.results, RESULTS_GROUP, unpack(hints, from, min(from + 999, #hints)))
  end
  local pending = redis.pcall('XPENDING', P.results, RESULTS_GROUP)
  if pending.err then return end                                           -- the group is gone, and all that was pending
  if pending[2] then
    call('XTRIM', P.results, 'MINID', '~', pending[2])
    return
  end
  for _, group in ipairs(call('XINFO', 'GROUPS', P.results)) do
    if group[2] == RESULTS_GROUP then
      local ms, seq = match(group[8], '^(%d+)-(%d+)$')              -- last-delivered-id
      call('XTRIM', P.results, 'MINID', '=', ms .. '-' .. format('%.0f', seq + 1))
    end
  end
end

-- All of an execution is gone, and it no longer uses its definition. `flush_dropped` ends what calls of this began.
local function drop(P, X)
  call('UNLINK', X.key)
  local dropped = P.dropped or {}
  P.dropped = dropped
  dropped[X.definition] = (dropped[X.definition] or 0) + 1
end

-- A definition that nobody uses any more stays a while for the next one.
local function flush_dropped(P, ttl)
  for definition, count in pairs(P.dropped or {}) do
    if call('HINCRBY', P.defs, definition, -count) <= 0 then
      call('HDEL', P.defs, definition)
      call('EXPIRE', P.prefix .. 'def:' .. definition, ttl)
    end
  end
end
