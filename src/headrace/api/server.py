"""Serving the application: a socket, uvicorn on it, and an orderly end.

It runs as a task among others and ends when the stop event is set: streams of events end, requests under way have a
while to finish. Signals belong to the process, not to the server.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from headrace.api.auth import Callers, is_loopback
from headrace.api.parts import ARRIVED, Parts
from headrace.api.problems import answer
from headrace.errors import HeadraceError
from headrace.settings import Settings

FINISH_WITHIN_SECONDS = 10
KEEP_ALIVE_SECONDS = 75  # longer than clients keep a connection: none sends a request on one that closes just then
BACKLOG = 2048


class _Protocol(HttpToolsProtocol):
    """uvicorn itself answers what is not HTTP, in plain text. Here that is a problem document like all others.

    A request that came in one piece is known to have done so before the application hears of it.
    """

    def on_message_complete(self) -> None:
        cast("dict[str, Any]", self.scope)[ARRIVED] = True
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        problem = answer("malformed_request", msg)
        headers = [b"%s: %s\r\n" % each for each in (*problem.raw_headers, (b"connection", b"close"))]
        self.transport.write(b"".join((b"HTTP/1.1 400 Bad Request\r\n", *headers, b"\r\n", problem.body)))
        self.transport.close()


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(
    app: FastAPI, settings: Settings, stop: asyncio.Event, *, listening: Callable[[str], None] | None = None
) -> None:
    """Until `stop` is set. `listening` is told the address as soon as clients can connect."""
    callers = cast("Callers", app.state.callers)
    parts = cast("Parts", app.state.parts)
    await _check_exposure(callers, settings)
    listener = _listen(settings.api_host, settings.api_port)
    config = uvicorn.Config(
        app,
        http=_Protocol,
        lifespan="off",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=FINISH_WITHIN_SECONDS,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
    )
    server = _Server(config)
    if listening is not None:
        listening(_url(listener))
    try:
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(server.serve(sockets=[listener]))
            stopping = group.create_task(stop.wait())
            await asyncio.wait((serving, stopping), return_when=asyncio.FIRST_COMPLETED)
            parts.stop.set()
            server.should_exit = True
            stopping.cancel()
    finally:  # if this was cancelled, uvicorn has closed nothing
        for each in (*getattr(server, "servers", ()), listener):
            each.close()


async def _check_exposure(callers: Callers, settings: Settings) -> None:
    if settings.api_allow_open or is_loopback(settings.api_host) or await callers.any_key():
        return
    raise HeadraceError(
        f"without any API key the API does not listen on {settings.api_host}: make a key with `headrace keys create`, "
        "set API_KEYS, or say API_ALLOW_OPEN=true if everybody who can reach it may use it"
    )


def _listen(host: str, port: int) -> socket.socket:
    """Bound and listening: a client that connects from now on is answered."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # The protocol is named because asyncio sends without delay only where it is: else an answer waits for 40 ms.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(BACKLOG)
        except OSError:
            listener.close()
            raise
    except OSError as error:
        raise HeadraceError(f"cannot listen on {host} port {port}: {error.strerror or error}") from error
    listener.setblocking(False)
    return listener


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
