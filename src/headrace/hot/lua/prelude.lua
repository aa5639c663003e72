-- What every function shares: here the partition and its server; records.lua, outbox.lua and children.lua follow.
-- FORMAT, DECLARED, RESULTS_GROUP, NODE, EXECUTION and the two tables of transitions are generated above this line.
--
-- A function works on one partition. It first reads the executions that its arguments name (`load_all`), so that
-- whatever refuses to be read does so before anything is written; then it changes nodes; `flush` writes each changed
-- execution once, with ONE event that holds all changes of its nodes and of itself that this call made.
--
-- Batches come as one flat MessagePack list, and records are packed with `struct`: small tables are what costs most in
-- Lua, and then calls of functions. What only travels through (payloads, outcomes, outputs, errors) is never looked into.

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

local function token(X, name, attempt)
  return X.id .. '|' .. X.epoch .. '|' .. TEXT[X.run] .. '|' .. name .. '|' .. TEXT[attempt]
end

local function timer(kind, X, name, attempt)
  return kind .. '|' .. token(X, name, attempt)
end
