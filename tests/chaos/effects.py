"""The effect server: the outside world, as far as handlers are concerned. A process of its own that no fault touches.

Each call is one line of JSON over a Unix socket. It is in the ledger, with the time at which it arrived, before it is
answered: whatever becomes of the caller, the call is known. Half a line, of a caller that was killed, is no call.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

ADDRESS = "CHAOS_EFFECTS"  # the environment variable that tells handlers where the server is


async def tell(call: dict[str, Any]) -> None:
    reader, writer = await asyncio.open_unix_connection(os.environ[ADDRESS])
    try:
        writer.write(_encoded(call))
        await reader.readline()
    finally:
        writer.close()


def tell_sync(call: dict[str, Any]) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(os.environ[ADDRESS])
        connection.sendall(_encoded(call))
        connection.recv(16)


def _encoded(call: dict[str, Any]) -> bytes:
    return json.dumps(call).encode() + b"\n"


async def serve(address: str, ledger: Path) -> None:
    book = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            text = await reader.readline()
            if text.endswith(b"\n"):
                os.write(book, b'{"at": %.6f, ' % time.time() + text[1:])
                writer.write(b"ok\n")
        except OSError:
            pass  # the caller is gone; if its line had come, it is written down
        finally:
            writer.close()

    server = await asyncio.start_unix_server(answer, address, backlog=512)
    async with server:
        await asyncio.to_thread(sys.stdin.read)  # until whoever started us is gone


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], Path(sys.argv[2])))
