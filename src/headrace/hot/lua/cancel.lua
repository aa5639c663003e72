-- cancel: a RUNNING execution becomes CANCELLED in this run, and the workers are told through the control stream.
-- Takes   {execution, run}
-- Answers 'cancelled', 'absent', 'opening', or the letter of the status that does not allow it (also: another run).
local function cancel(keys, args)
  local P = open_partition(keys)
  local id, run = unpack(from_msgpack(args[1]))
  local X = load(P, id)
  if not X then return 'absent' end
  if X.status == EXECUTION.OPENING then return 'opening' end
  if X.run ~= run or X.status ~= EXECUTION.RUNNING then return X.status end
  finish(P, X, EXECUTION.CANCELLED)
  call('XADD', P.control, 'MAXLEN', '~', 1000, '*', '@', X.id .. '|' .. X.epoch)
  flush(P)
  return 'cancelled'
end
