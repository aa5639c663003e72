-- reserve: the first half of opening executions: a fresh start, the next run, or a rebuild.
-- Takes   {ttl of the reservation in ms, ttl of an unused definition in s, then of each:
--          execution, token, old epoch, last event, run, whether another reservation may be replaced, whether the
--          caller has seen that what is open here is behind the record: the store went back in time}
-- Allowed if the execution is absent, or reserved (again), or open with a smaller run, exactly this epoch and last event
--         (so everything that it ever said is known to the caller), and nothing of a FAILED run is still under way. What
--         is behind the record may have the same run.
-- Effect  it is OPENING under the token, for the time of the ttl; whatever was there is gone. With the token that it is
--         OPENING under already, only the ttl begins anew.
-- Answers of each 'reserved', 'exists' (not allowed), or 'busy' (not yet: a FAILED run still has attempts under way).
local function reserve(keys, args)
  local P = open_partition(keys)
  local items = from_msgpack(args[1])
  local ttl_ms, definition_ttl = TEXT[items[1]], items[2]
  load_all(P, items, 7, 3)
  local answers = {}
  for i = 3, #items, 7 do
    local id, new, old_epoch, last, run, again, behind = unpack(items, i, i + 6)
    local X = load(P, id)
    local answer = 'reserved'
    if X and X.status == EXECUTION.OPENING and X.epoch == new then
      answer = 'held'
    elseif X and X.status == EXECUTION.OPENING then
      if not again then answer = 'exists' end
    elseif X then
      if X.run > run or (X.run == run and not behind) or X.epoch ~= old_epoch or X.last ~= last then answer = 'exists'
      elseif X.status == EXECUTION.FAILED and X.busy > 0 then answer = 'busy'
      else drop(P, X) end
    end
    local key = P.execution_prefix .. id
    if answer == 'held' then                                               -- a repeated call keeps what was filled since
      call('PEXPIRE', key, ttl_ms)
      answer = 'reserved'
    elseif answer == 'reserved' then
      if X then call('UNLINK', key) end
      call('HSET', key, '@m', pack_reservation(run, new))
      call('PEXPIRE', key, ttl_ms)
      P.executions[id] = nil
    end
    answers[#answers + 1] = answer
  end
  flush_dropped(P, definition_ttl)
  return answers
end
