-- settle: says that nothing in this partition is older than the record any more, so that work may be claimed.
-- A server that was started again, or a replica that took over, may have gone back in time: a task that it holds may be
-- of a node that has long ended. Until somebody who knows the record has looked, `claim` gives nothing. The mark is the
-- server's own id, which is new with each start.
-- Takes   {the id of the server that was looked at; or '', only to ask}
-- Guard   this is that server.
-- Effect  the mark; and all bells ring, for workers sleep.
-- Answers '' if the partition is settled, else the id of this server.
local function settle(keys, args)
  local P = open_partition(keys)
  if from_msgpack(args[1])[1] == server_id() and not is_settled(P) then
    call('HSET', P.meta, 'settled', server_id())
    for _, handler in ipairs(call('SMEMBERS', P.queues)) do ring(P, handler) end
  end
  return is_settled(P) and '' or server_id()
end
