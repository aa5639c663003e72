-- What follows from a node that is complete: its children, counted, and those that are ready.

-- The verdict on a REPORTED node: success. -> its cursor. Where the execution is no longer RUNNING, that is recorded and
-- moves nobody.
local function succeed(P, X, name, attempt, output, total)
  local running = X.status == EXECUTION.RUNNING
  check_move(NODE.REPORTED, NODE.COMPLETED)
  X.busy, X.left = X.busy - 1, X.left - 1
  write_field(P, X, 'o:' .. name, output)
  record(X, name, NODE.COMPLETED, attempt, output)
  if running and X.left == 0 then finish(P, X, X.failed > 0 and EXECUTION.FAILED or EXECUTION.COMPLETED) end
  return running and 0 or total
end

-- Brings the fields with these names into X.nodes.
local function read_fields(X, names)
  local found = call('HMGET', X.key, unpack(names))
  for i = 1, #names do X.nodes[names[i]] = found[i] end
end

-- One more parent of a node is done: -> how many are. X.nodes knows, under the count's own name, where it stands in
-- X.fields: the parents of one call are counted with one read and one write.
local function count_parent(P, X, field)
  local at, done = X.nodes[field], nil
  if at then
    done = X.fields[at] + 1
    X.fields[at] = TEXT[done]
  else
    done = (call('HGET', X.key, field) or 0) + 1
    write_field(P, X, field, TEXT[done])
    X.nodes[field] = #X.fields
  end
  return done
end

local function parents_done(X, field)
  local at = X.nodes[field]
  return tonumber(at and X.fields[at] or call('HGET', X.key, field) or 0)
end

-- Of several nodes, those that have one parent or none: their records will be asked for.
local function read_ahead(X, items, first, count)
  local names, nodes = {}, X.nodes
  for at = first, first + 4 * count - 4, 4 do
    if items[at + 1] < 2 and nodes[items[at]] == nil then names[#names + 1] = items[at] end
  end
  if #names > 1 then read_fields(X, names) end
end

-- `counted`: how many of the slice were counted before this call; -1 when nothing is to be counted.
local function answer_ready(P, X, items, first, count, counted, replies, args)
  if count > 1 then read_ahead(X, items, first, count) end
  local found = 0
  for i = 1, count do
    local at = first + 4 * i - 4
    local name, parents = items[at], items[at + 1]
    local done = parents
    if counted >= 0 and parents > 1 then
      done = i > counted and count_parent(P, X, 'd:' .. name) or parents_done(X, 'd:' .. name)
    elseif counted < 0 and parents > 0 then
      done = parents_done(X, 'd:' .. name)
    end
    if done == parents then
      local raw = read_node(X, name)
      local state, attempt = node_head(raw)
      local task = items[at + 3]
      if state == NODE.PENDING and task > 0 and attempt == 0 then
        queue_node(P, X, name, raw, items[at + 2], args[task])
      elseif state == NODE.PENDING then
        found = found + 1
        replies[#replies + 1] = i
        replies[#replies + 1] = attempt
      end
    end
  end
  return found
end
