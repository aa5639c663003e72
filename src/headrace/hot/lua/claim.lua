-- claim: a worker takes work, never more than it has free slots, fair over its handlers.
-- Takes   {worker, free slots, lease in ms}; the task streams of its handlers follow the declared keys.
-- Effect  entries are read from the head of each stream and deleted there; where the execution is mine and RUNNING, the
--         node QUEUED and the attempt fits: RUNNING, a lease. All others are dropped: nothing is read but not claimed.
--         A first round gives each handler an even share of the slots, a second one hands out what is left.
--         A task of an execution of another format goes to the end of its stream, for those who know the format.
-- Answers {the claimed tasks as one MessagePack list, how many entries were read}.
local function claim(keys, args)
  local P = open_partition(keys)
  local worker, slots, lease_ms = unpack(from_msgpack(args[1]))
  local handlers = #keys - #DECLARED
  slots = min(slots, 1000)                                            -- what one event and one reply can hold
  local entries, last = {}, {}
  local function take(stream, count)
    local got = call('XRANGE', stream, last[stream] and '(' .. last[stream] or '-', '+', 'COUNT', count)
    for i = 1, #got do
      local fields, at = got[i][2], #entries                               -- '@', token, 'm', message
      entries[at + 1], entries[at + 2], entries[at + 3] = stream, fields[2], fields[4]
      entries[at + 4], entries[at + 5], entries[at + 6], entries[at + 7], entries[at + 8] = match(fields[2], TOKEN)
    end
    if #got > 0 then last[stream] = got[#got][1] end
    slots = slots - #got
    return #got
  end
  local more = {}
  for i = 1, handlers do
    local stream = keys[#DECLARED + i]
    local share = math.ceil(slots / (handlers - i + 1))
    if share > 0 and take(stream, share) == share then more[#more + 1] = stream end
  end
  for _, stream in ipairs(more) do
    if slots > 0 then take(stream, slots) end
  end
  for i = 1, #entries, 8 do load(P, entries[i + 3], true, entries[i + 6]) end

  for stream, id in pairs(last) do
    local ms, seq = match(id, '^(%d+)-(%d+)$')
    call('XTRIM', stream, 'MINID', '=', ms .. '-' .. format('%.0f', seq + 1))
  end
  local claimed, lease_ends = {}, text(P.now + lease_ms)
  for i = 1, #entries, 8 do
    local stream, task, message, id, epoch, run, name, attempt = unpack(entries, i, i + 7)
    if load(P, id, true) == nil then
      call('XADD', stream, '*', '@', task, 'm', message)
    else
      local X = mine(P, id, epoch, tonumber(run))
      local nd = X and X.status == EXECUTION.RUNNING and read_node(X, name)
      if nd and nd[STATE] == NODE.QUEUED and nd[ATTEMPT] == tonumber(attempt) then
        move(nd, NODE.RUNNING)
        nd[STARTED_AT], nd[WORKER] = P.now, worker
        write_node(P, X, name)
        set_timer(P, lease_ends, 'L|' .. task)
        X.busy = X.busy + 1
        record(P, X, name, nd, worker)
        claimed[#claimed + 1] = message
      end
    end
  end
  flush(P)
  local count = #claimed
  local header = string.char(0xdd, floor(count / 16777216) % 256, floor(count / 65536) % 256,
                             floor(count / 256) % 256, count % 256)
  return {header .. table.concat(claimed), #entries / 8}
end
