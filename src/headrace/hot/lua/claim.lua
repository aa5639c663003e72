-- claim: a worker takes work, never more than it has free slots, fair over its handlers.
-- Takes   {worker, free slots, lease in ms}; the task lists of its handlers follow the declared keys.
-- Guard   the partition is settled (settle.lua); else nothing is taken.
-- Effect  messages are taken from the head of each list; where the execution is mine and RUNNING, the node QUEUED and the
--         attempt fits: RUNNING, a lease. All others are dropped: nothing is taken but not claimed.
--         A first round gives each handler an even share of the slots, a second one hands out what is left.
--         A task of an execution of another format goes to the end of its list, for those who know the format.
-- Answers {the claimed tasks as one MessagePack list, how many messages were taken}.
local function claim(keys, args)
  local P = open_partition(keys)
  if not is_settled(P) then return {string.char(0x90), 0} end
  local worker, slots, lease_ms = unpack(from_msgpack(args[1]))
  local handlers = #keys - #DECLARED
  slots = min(slots, 1000)                                            -- what one event and one reply can hold
  local entries, heads = {}, {}
  local function take(list, count)
    local head = heads[list] or 0
    local got = call('LRANGE', list, head, head + count - 1)
    for i = 1, #got do
      local message, at = got[i], #entries
      entries[at + 1], entries[at + 2] = list, message
      entries[at + 3], entries[at + 4], entries[at + 5], entries[at + 6], entries[at + 7] = read_token(message)
    end
    if #got > 0 then heads[list] = head + #got end
    slots = slots - #got
    return #got
  end
  local more = {}
  for i = 1, handlers do
    local list = keys[#DECLARED + i]
    local share = math.ceil(slots / (handlers - i + 1))
    if share > 0 and take(list, share) == share then more[#more + 1] = list end
  end
  for _, list in ipairs(more) do
    if slots > 0 then take(list, slots) end
  end
  load_all(P, entries, 7, 3, 3, true)

  for list, head in pairs(heads) do call('LTRIM', list, head, -1) end
  local claimed, lease_ends = {}, TEXT[P.now + lease_ms]
  for i = 1, #entries, 7 do
    local message, id, name = entries[i + 1], entries[i + 2], entries[i + 5]
    if P.executions[id] == nil then
      call('RPUSH', entries[i], message)
    else
      local X = mine(P, id, entries[i + 3], entries[i + 4])
      local raw = X and X.status == EXECUTION.RUNNING and read_node(X, name)
      local state, attempt = node_head(raw)
      if state == NODE.QUEUED and attempt == entries[i + 6] then
        write_node(P, X, name, as_claimed(state, raw, P.now_packed, worker))
        set_timer(P, lease_ends, timer('L', X, name, attempt))
        X.busy = X.busy + 1
        record(X, name, NODE.RUNNING, attempt, worker)
        claimed[#claimed + 1] = message
      end
    end
  end
  flush(P)
  local count = #claimed
  local header = string.char(0xdd, floor(count / 16777216) % 256, floor(count / 65536) % 256,
                             floor(count / 256) % 256, count % 256)
  return {header .. table.concat(claimed), #entries / 7}
end
