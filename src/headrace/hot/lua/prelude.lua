-- What every function shares: the partition's keys, the record of an execution, the record of a node, events, timers.
-- FORMAT, DECLARED, RESULTS_GROUP, NODE, EXECUTION and the two tables of transitions are generated above this line.
--
-- A function works on one partition. It first reads the executions that its arguments name (`load_all`), so that
-- whatever refuses to be read does so before anything is written; then it changes nodes; `flush` writes each changed
-- execution once, with ONE event that holds all changes of its nodes and of itself that this call made.
--
-- Batches come as one flat MessagePack list, and records are packed with `struct`: small tables are what costs most in
-- Lua. What only travels through (payloads, outcomes, outputs, errors) is never looked into.

-- An execution is one hash. '@m' holds its record: format, status, mode, has a deadline, run, nodes left, attempts under
-- way, nodes failed, events so far, epoch (of an OPENING one: its token), last event, definition hash.
local EXECUTION_RECORD = '<c1c1c1c1IIIIIsss'

-- A field with a node's name holds its record: state, attempt, retries, lost leases, cursor, queued at, started at,
-- finished at, worker; behind it the last failure, as it is. An absent one is PENDING with nothing behind it.
-- 'd:<node>' holds how many of its parents are done, 'o:<node>' its output.
local NODE_RECORD = '<c1IIIIddds'
local STATE, ATTEMPT, RETRIES, LOST, CURSOR, QUEUED_AT, STARTED_AT, FINISHED_AT, WORKER, ERROR = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10

local TOKEN = '^([^|]*)|([^|]*)|(%d+)|([^|]*)|(%d+)$'

local function open_partition(keys)
  local P = {executions = {}, order = {}, queued = {}, stopped = {}, set = {}}
  for i, name in ipairs(DECLARED) do P[name] = keys[i] end
  P.prefix = string.sub(keys[1], 1, -5)                                    -- "...meta" without "meta"
  local t = redis.call('TIME')
  P.now = t[1] * 1000 + math.floor(t[2] / 1000)
  P.now_text = string.format('%.0f', P.now)
  return P
end

local function execution_key(P, id)
  return P.prefix .. 'x:' .. id
end

local function refuse_format(id, format)
  error({err = 'FORMAT execution ' .. id .. ' has format ' .. tostring(format) .. ', this library has ' .. FORMAT})
end

local function unpack_node(raw)
  if not raw then return {NODE.PENDING, 0, 0, 0, 0, 0, 0, 0, '', ''} end
  local nd = {struct.unpack(NODE_RECORD, raw)}
  nd[ERROR] = string.sub(raw, nd[ERROR])                                   -- unpack ends with the position behind it
  return nd
end

local function pack_node(nd)
  return struct.pack(NODE_RECORD, nd[STATE], nd[ATTEMPT], nd[RETRIES], nd[LOST], nd[CURSOR], nd[QUEUED_AT], nd[STARTED_AT],
                     nd[FINISHED_AT], nd[WORKER]) .. nd[ERROR]
end

-- The execution, or false. One of another format is refused; `lenient` answers nil for it. With a node's name, that
-- node is read with it.
local function load(P, id, lenient, name)
  local X = P.executions[id]
  if X ~= nil then return X end
  local key, raw, node = execution_key(P, id), nil, nil
  if name then
    local both = redis.call('HMGET', key, '@m', name)
    raw, node = both[1], both[2]
  else
    raw = redis.call('HGET', key, '@m')
  end
  if not raw then P.executions[id] = false return false end
  local format, status, mode, deadline, run, left, busy, failed, seq, epoch, last, definition =
    struct.unpack(EXECUTION_RECORD, raw)
  if format ~= FORMAT then
    if lenient then return nil end
    refuse_format(id, format)
  end
  X = {id = id, key = key, status = status, mode = mode, deadline = deadline, run = run, left = left, busy = busy,
       failed = failed, seq = seq, epoch = epoch, last = last, definition = definition, packed = raw,
       nodes = {}, changes = false, fields = false, moved = false, ended = false, opened = false, error = false}
  if name then X.nodes[name] = unpack_node(node) end
  P.executions[id] = X
  return X
end

-- Reads the executions named in a flat list of items; `name`: how far behind the execution its node stands.
local function load_all(P, items, width, at, name)
  for i = at, #items, width do load(P, items[i], false, name and items[i + name]) end
end

-- The execution, if it is open with exactly this run and epoch.
local function mine(P, id, epoch, run)
  local X = load(P, id)
  if X and X.status ~= EXECUTION.OPENING and X.epoch == epoch and X.run == run then return X end
end

-- The execution, if it is mine and attempts of it may still end: it is RUNNING, or FAILED with some under way.
local function mine_alive(P, id, epoch, run)
  local X = mine(P, id, epoch, run)
  if X and (X.status == EXECUTION.RUNNING or X.status == EXECUTION.FAILED) then return X end
end

local function touch(P, X)
  if not X.fields then
    X.fields, X.moved, X.changes = {}, {}, {'@', ''}
    P.order[#P.order + 1] = X
  end
end

local function read_node(X, name)
  local nd = X.nodes[name]
  if not nd then
    nd = unpack_node(redis.call('HGET', X.key, name))
    X.nodes[name] = nd
  end
  return nd
end

-- What `flush` is to write: a node, or a field of the execution's hash.
local function write_node(P, X, name)
  touch(P, X)
  if not X.moved[name] then X.moved[name] = true; X.moved[#X.moved + 1] = name end
end

local function write_field(P, X, field, value)
  touch(P, X)
  local fields = X.fields
  fields[#fields + 1] = field
  fields[#fields + 1] = value
end

local function move(nd, to)
  if not NODE_MOVES[nd[STATE]][to] then error({err = 'TRANSITION of a node ' .. nd[STATE] .. ' to ' .. to}) end
  nd[STATE] = to
end

-- A change of a node, for the event: letter of the state, attempt, and what belongs to it.
local function record(P, X, name, nd, more)
  touch(P, X)
  local changes = X.changes
  changes[#changes + 1] = name
  changes[#changes + 1] = nd[STATE] .. nd[ATTEMPT] .. ' ' .. (more or '')
end

local function token(X, name, attempt)
  return X.id .. '|' .. X.epoch .. '|' .. X.run .. '|' .. name .. '|' .. attempt
end

local function timer(kind, X, name, attempt)
  return kind .. '|' .. token(X, name, attempt)
end

-- Timers are set and stopped by `flush`, all of a call at once.
local function set_timer(P, at, member)
  local set = P.set
  set[#set + 1] = at
  set[#set + 1] = member
end

local function stop_timer(P, member)
  P.stopped[#P.stopped + 1] = member
end

local function finish(P, X, to, err)
  if not EXECUTION_MOVES[X.status][to] then error({err = 'TRANSITION of an execution ' .. X.status .. ' to ' .. to}) end
  touch(P, X)
  X.status, X.ended, X.error = to, to, X.error or err
  if X.deadline == 'd' then stop_timer(P, timer('X', X, '', 0)) end
end

local function pack_execution(X)
  return struct.pack(EXECUTION_RECORD, FORMAT, X.status, X.mode, X.deadline, X.run, X.left, X.busy, X.failed, X.seq,
                     X.epoch, X.last, X.definition)
end

-- One entry of the outbox: of each execution '@', its header, and then pairs of a node and its change.
local function write_events(P, entry, whose)
  local id = redis.call('XADD', P.events, '*', unpack(entry))
  for _, X in ipairs(whose) do X.last = id end
end

local function flush_events(P)
  local entry, whose = {}, {}
  for _, X in ipairs(P.order) do
    local changes = X.changes
    if #changes > 2 or X.ended or X.opened then
      if #entry > 0 and #entry + #changes > 4000 then
        write_events(P, entry, whose)
        entry, whose = {}, {}
      end
      X.seq = X.seq + 1
      changes[2] = X.id .. '|' .. X.epoch .. '|' .. X.run .. '|' .. X.seq .. '|' .. X.last .. '|' .. P.now_text .. '|' ..
                   (X.ended or X.opened or '') .. '|' .. (X.error or '')
      for _, part in ipairs(changes) do entry[#entry + 1] = part end
      whose[#whose + 1] = X
    end
  end
  if #entry > 0 then write_events(P, entry, whose) end
end

local function flush_execution(P, X)
  local fields = X.fields
  local packed = pack_execution(X)
  if packed ~= X.packed then
    fields[#fields + 1] = '@m'
    fields[#fields + 1] = packed
  end
  for _, name in ipairs(X.moved) do
    fields[#fields + 1] = name
    fields[#fields + 1] = pack_node(X.nodes[name])
  end
  if X.ended then
    fields[#fields + 1] = '@finished'
    fields[#fields + 1] = P.now
  end
  for from = 1, #fields, 4000 do redis.call('HSET', X.key, unpack(fields, from, math.min(from + 3999, #fields))) end
  if X.error and redis.call('HSETNX', X.key, '@error', X.error) == 1 and X.error_node then
    redis.call('HSET', X.key, '@error_node', X.error_node)
  end
end

-- Writes what this call has changed: the events, which give each execution its last event, the executions, the timers.
local function flush(P)
  flush_events(P)
  for _, X in ipairs(P.order) do flush_execution(P, X) end
  for from = 1, #P.stopped, 4000 do
    redis.call('ZREM', P.timers, unpack(P.stopped, from, math.min(from + 3999, #P.stopped)))
  end
  for from = 1, #P.set, 4000 do
    redis.call('ZADD', P.timers, unpack(P.set, from, math.min(from + 3999, #P.set)))
  end
end

-- `message` is what `claim` hands to a worker: a packed Task.
local function queue_task(P, X, name, attempt, handler, message)
  if not P.queued[handler] then
    P.queued[handler] = true
    redis.call('SADD', P.queues, handler)
  end
  redis.call('XADD', P.prefix .. 'tasks:' .. handler, '*', '@', token(X, name, attempt), 'm', message)
end

-- A hint to the orchestrators: the outcome of an attempt, or with an empty node the start of a run.
local function queue_hint(P, X, name, attempt, retries, lost, outcome)
  redis.call('XADD', P.results, '*', '@', token(X, name, attempt) .. '|' .. X.definition .. '|' .. retries .. '|' .. lost,
             'o', outcome)
end

-- Hints are acknowledged, and the head of the stream that nobody needs any more is cut off: all that was delivered, or
-- what lies before the oldest pending hint. Cutting the head is far cheaper than deleting entry by entry.
local function acknowledge(P, hints)
  if #hints == 0 then return end
  for from = 1, #hints, 1000 do
    redis.call('XACK', P.results, RESULTS_GROUP, unpack(hints, from, math.min(from + 999, #hints)))
  end
  local pending = redis.pcall('XPENDING', P.results, RESULTS_GROUP)
  if pending.err then return end                                           -- the group is gone, and all that was pending
  if pending[2] then
    redis.call('XTRIM', P.results, 'MINID', '~', pending[2])
    return
  end
  for _, group in ipairs(redis.call('XINFO', 'GROUPS', P.results)) do
    if group[2] == RESULTS_GROUP then
      local ms, seq = string.match(group[8], '^(%d+)-(%d+)$')              -- last-delivered-id
      redis.call('XTRIM', P.results, 'MINID', '=', ms .. '-' .. string.format('%.0f', seq + 1))
    end
  end
end

-- All of an execution is gone, and it no longer uses its definition, which stays a while for the next one.
local function drop(P, X, ttl)
  redis.call('UNLINK', X.key)
  if redis.call('HINCRBY', P.defs, X.definition, -1) <= 0 then
    redis.call('HDEL', P.defs, X.definition)
    redis.call('EXPIRE', P.prefix .. 'def:' .. X.definition, ttl)
  end
end
