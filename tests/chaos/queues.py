"""The places where messages wait, as somebody who tampers with them sees them: streams, and the lists of tasks.

Taking a message out and putting it back at the end is one script where it happens at once: no message may be lost.
"""

from __future__ import annotations

from headrace.hot import keys
from headrace.hot.wire import Link

Messages = list[list[bytes]]  # of an entry its fields, of a task the text

# From the head of a stream; where it has a group, only what nobody was given yet (see faults/streams.py).
TAKE_ENTRIES = """
local behind = '-'
for _, group in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
  for i = 1, #group, 2 do
    if group[i] == 'last-delivered-id' then behind = '(' .. group[i + 1] end
  end
end
local taken = redis.call('XRANGE', KEYS[1], behind, '+', 'COUNT', ARGV[1])
local fields = {}
for i, entry in ipairs(taken) do
  redis.call('XDEL', KEYS[1], entry[1])
  fields[i] = entry[2]
end
if ARGV[2] == 'back' then
  for i = #fields, 1, -1 do redis.call('XADD', KEYS[1], '*', unpack(fields[i])) end
end
return fields
"""

TAKE_TASKS = """
local taken = {}
for i, task in ipairs(redis.call('LPOP', KEYS[1], ARGV[1]) or {}) do taken[i] = {task} end
if ARGV[2] == 'back' then
  for i = #taken, 1, -1 do redis.call('RPUSH', KEYS[1], taken[i][1]) end
end
return taken
"""

ADD_TASK = """
redis.call('RPUSH', KEYS[1], ARGV[1])
redis.call('XADD', KEYS[2], 'MAXLEN', 1, '*', 't', '0')
"""


class Queue:
    """`name` is that of a stream (results, control, events), or tasks:<handler>."""

    def __init__(self, link: Link, partition: int, name: str) -> None:
        self._link = link
        self._key = keys.prefix(partition) + name
        self._is_tasks = name.startswith("tasks:")
        self._bell = keys.bell(partition, name.removeprefix("tasks:"))

    async def newest(self, most: int) -> Messages:
        if self._is_tasks:
            return [[task] for task in await self._link.call("LRANGE", self._key, -most, -1)]
        return [fields for _, fields in await self._link.call("XREVRANGE", self._key, "+", "-", "COUNT", most)]

    async def take(self, most: int, *, back: bool) -> Messages:
        """The first ones; with `back` they become the last, in the opposite order."""
        script = TAKE_TASKS if self._is_tasks else TAKE_ENTRIES
        taken: Messages = await self._link.call("EVAL", script, 1, self._key, most, "back" if back else "")
        return taken

    async def add(self, message: list[bytes]) -> None:
        if self._is_tasks:
            await self._link.call("EVAL", ADD_TASK, 2, self._key, self._bell, *message)
        else:
            await self._link.call("XADD", self._key, "*", *message)
