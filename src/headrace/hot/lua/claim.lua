-- claim: a worker takes work, never more than it has free slots, fair over its handlers.
-- Takes   {worker, free slots, lease in ms}; the task streams of its handlers follow the declared keys.
-- Effect  entries are read from the head of each stream and deleted there; where the execution is mine and RUNNING, the
--         node QUEUED and the attempt fits: RUNNING, a lease. All others are dropped: nothing is read but not claimed.
--         A first round gives each handler an even share of the slots, a second one hands out what is left.
--         A task of an execution of another format goes to the end of its stream, for those who know the format.
-- Answers {the claimed tasks as one MessagePack list, how many entries were read}.
local function claim(keys, args)
  local P = open_partition(keys)
  local worker, slots, lease_ms = unpack(cmsgpack.unpack(args[1]))
  local handlers = #keys - #DECLARED
  slots = math.min(slots, 1000)                                            -- what one event and one reply can hold
  local entries, last = {}, {}
  local function take(stream, count)
    local got = redis.call('XRANGE', stream, last[stream] and '(' .. last[stream] or '-', '+', 'COUNT', count)
    for _, entry in ipairs(got) do
      entries[#entries + 1] = stream
      entries[#entries + 1] = entry[2]
      last[stream] = entry[1]
    end
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
  for i = 2, #entries, 2 do
    local fields = entries[i]                                              -- '@', token, 'm', message
    fields[5], fields[6], fields[7], fields[8], fields[9] = string.match(fields[2], TOKEN)
    load(P, fields[5], true, fields[8])
  end

  for stream, id in pairs(last) do
    local ms, seq = string.match(id, '^(%d+)-(%d+)$')
    redis.call('XTRIM', stream, 'MINID', '=', ms .. '-' .. string.format('%.0f', seq + 1))
  end
  local claimed = {}
  for i = 1, #entries, 2 do
    local _, task, _, message, id, epoch, run, name, attempt = unpack(entries[i + 1], 1, 9)
    if load(P, id, true) == nil then
      redis.call('XADD', entries[i], '*', '@', task, 'm', message)
    else
      local X = mine(P, id, epoch, tonumber(run))
      local nd = X and X.status == EXECUTION.RUNNING and read_node(X, name)
      if nd and nd[STATE] == NODE.QUEUED and nd[ATTEMPT] == tonumber(attempt) then
        move(nd, NODE.RUNNING)
        nd[STARTED_AT], nd[WORKER] = P.now, worker
        write_node(P, X, name)
        set_timer(P, P.now + lease_ms, 'L|' .. task)
        X.busy = X.busy + 1
        record(P, X, name, nd, worker)
        claimed[#claimed + 1] = message
      end
    end
  end
  flush(P)
  local count = #claimed
  local header = string.char(0xdd, math.floor(count / 16777216) % 256, math.floor(count / 65536) % 256,
                             math.floor(count / 256) % 256, count % 256)
  return {header .. table.concat(claimed), #entries / 2}
end
