-- What a call has changed, and how `flush` writes it: events, tasks, hints, timers. And how hints go, and executions.

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
