"""The HTTP client against servers and URLs that mean harm, on real sockets.

What must not be reached is a server that counts its connections; what must end is given far more time than its limit.
"""

from __future__ import annotations

import asyncio
import gzip
import itertools
import socket
import ssl
import zlib
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import httpcore2
import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import Fatal, Retry
from headrace.worker import dialer
from headrace.worker.answers import refuse_status, retry_after_seconds
from headrace.worker.outbound import Answer, Outbound, _Decoder
from tests.hostile_server import Seen, answer, ending, endless, redirect, saying, serving
from tests.ssrf_corpus import NAMES, PUBLIC, corpus, spellings

CORPUS = corpus()
REDIRECTABLE = [url for url in CORPUS if not set("\r\n\0") & set(url)]
REDIRECTS = list(zip(REDIRECTABLE, itertools.cycle([301, 302, 303, 307, 308]), strict=False))
REFUSED = "HTTP_ALLOWED_HOSTS=|the URL |the port of the URL|redirected more than|redirected from https"
ENDS_SECONDS = 20  # far beyond any limit here


def short(value: object) -> str:
    return ascii(value)[:60]


async def resolve(host: str, port: int) -> Sequence[str]:
    """The corpus's names. All that is unknown is loopback, so that only a check can keep us away from it."""
    name = host.lower().removesuffix(".")
    try:
        return NAMES.get(name) or [socket.inet_ntoa(socket.inet_aton(name))]
    except OSError:
        return ["127.0.0.1"]


def client(*allowed: str, resolve: dialer.Resolve | None = resolve, **options: Any) -> Outbound:
    made = Outbound(allowed_hosts=allowed, resolve=resolve, **options)
    _made.append(made)
    return made


_made: list[Outbound] = []


@pytest.fixture(autouse=True)
async def _closed() -> AsyncIterator[None]:
    yield
    while _made:
        await _made.pop().aclose()


async def get(outbound: Outbound, url: str, **options: Any) -> Answer:
    given = {"method": "GET", "timeout_seconds": 10.0, "max_bytes": 100_000, **options}
    async with asyncio.timeout(ENDS_SECONDS):
        return await outbound.send(given.pop("method"), url, **given)


# ---- where it may go


def test_the_corpus_is_large_enough() -> None:
    assert len(CORPUS) >= 300


@pytest.mark.parametrize("url", CORPUS, ids=short)
async def test_the_corpus_is_refused(url: str) -> None:
    async with serving() as server:
        with pytest.raises(Fatal, match=REFUSED):
            await get(client(), url.replace("PORT", str(server.port)))
        assert server.connections == 0


@pytest.mark.parametrize(("url", "status"), REDIRECTS, ids=short)
async def test_a_redirect_to_the_corpus_is_refused(url: str, status: int) -> None:
    async with serving() as server, serving(redirect(url.replace("PORT", str(server.port)), status)) as front:
        with pytest.raises(Fatal, match=REFUSED):
            await get(client(f"front.test:{front.port}"), f"http://front.test:{front.port}/")
        assert server.connections == 0
        assert front.requests


@pytest.mark.parametrize("host", [each for each in spellings("127.0.0.1") if each.count(".") < 3 or "x" in each])
async def test_odd_spellings_do_lead_to_the_server_when_that_is_allowed(host: str) -> None:
    """So the corpus is about something, and the system's own lookup gets the same check."""
    async with serving() as server:
        url = f"http://{host}:{server.port}/"
        with pytest.raises(Fatal, match="a loopback address"):
            await get(client(resolve=None), url)
        assert server.connections == 0
        assert (await get(client(resolve=None, allow_private=True), url)).content == b"hello"
        assert (await get(client("127.0.0.1", resolve=None), url)).content == b"hello"


async def test_a_name_that_changes_its_address_gains_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([[PUBLIC], ["127.0.0.1"], ["127.0.0.1"]])
    dialed = []

    async def rebinding(host: str, port: int) -> Sequence[str]:
        return next(answers)

    async def connect(self: object, host: str, port: int, *rest: object) -> httpcore2.AsyncNetworkStream:
        dialed.append(host)
        raise httpcore2.ConnectError("no")

    monkeypatch.setattr(httpcore2.AnyIOBackend, "connect_tcp", connect)
    outbound = client(resolve=rebinding)
    with pytest.raises(Retry, match=r"rebinding\.test"):
        await get(outbound, "http://rebinding.test/")
    assert dialed == [PUBLIC]
    with pytest.raises(Fatal, match="HTTP_ALLOWED_HOSTS"):
        await get(outbound, "http://rebinding.test/")
    assert dialed == [PUBLIC]


async def test_the_address_that_was_checked_is_the_one_that_is_used() -> None:
    answers = iter([["127.0.0.1"], ["10.0.0.1"]])

    async def rebinding(host: str, port: int) -> Sequence[str]:
        return next(answers)

    async with serving() as server:
        outbound = client("127.0.0.1", resolve=rebinding)
        await get(outbound, f"http://rebinding.test:{server.port}/")
        await get(outbound, f"http://rebinding.test:{server.port}/")  # on the same connection, without a lookup
        assert (server.connections, len(server.requests)) == (1, 2)
        assert server.requests[0].headers["host"] == f"rebinding.test:{server.port}"
        await outbound.aclose()
        with pytest.raises(Fatal, match="a private address"):
            await get(outbound, f"http://rebinding.test:{server.port}/")


async def test_all_addresses_are_tried_in_turn() -> None:
    async def many(host: str, port: int) -> Sequence[str]:
        return ["127.0.0.2", "127.0.0.3", "127.0.0.1"]

    async with serving() as server:
        found = await get(client("127.0.0.0/8", resolve=many), f"http://many.test:{server.port}/")
        assert found.content == b"hello"


async def test_clients_do_not_share_connections() -> None:
    async with serving() as server:
        url = f"http://inside.test:{server.port}/"
        await get(client("inside.test"), url)
        with pytest.raises(Fatal, match=r"HTTP_ALLOWED_HOSTS=inside\.test:"):
            await get(client(), url)
        assert server.connections == 1


async def test_nothing_is_taken_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / ".netrc").write_text("machine inside.test login me password secret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    async with serving() as proxy, serving(answer("x", headers={"Set-Cookie": "a=b"})) as server:
        for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        outbound = client("inside.test")
        for _ in range(2):
            await get(outbound, f"http://inside.test:{server.port}/")
        assert proxy.connections == 0
        for seen in server.requests:
            assert not {"cookie", "authorization", "proxy-authorization"} & seen.headers.keys()


async def test_unix_sockets_are_refused() -> None:
    outbound = client(allow_private=True)
    outbound._opened_pool()._uds = "/tmp/any.sock"
    with pytest.raises(Fatal, match="Unix sockets"):
        await get(outbound, "http://a.test/")


@pytest.mark.parametrize("found", [[], OSError("no")])
async def test_a_failed_lookup_is_tried_again(found: list[str] | OSError) -> None:
    async def lookup(host: str, port: int) -> Sequence[str]:
        if isinstance(found, OSError):
            raise found
        return found

    with pytest.raises(Retry, match=r"away\.test"):
        await get(client(resolve=lookup), "http://away.test/?secret=1")


async def test_a_lookup_that_hangs_is_given_up() -> None:
    async def hang(host: str, port: int) -> Sequence[str]:
        await asyncio.Event().wait()
        raise AssertionError

    with pytest.raises(Retry, match=r"slow\.test did not answer within 0\.05 seconds"):
        await get(client(resolve=hang), "http://slow.test/", timeout_seconds=0.05)


# ---- what is sent


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("X-A", "a\r\nX-B: c", "X-A has a character"),
        ("X-A", "a\nb", "X-A has a character"),
        ("X-A", "a\rb", "X-A has a character"),
        ("X-A", "a\0b", "X-A has a character"),
        ("X-A", "a\x7fb", "X-A has a character"),
        ("X-A", "日本", "X-A has a character"),
        ("X-A\r\nX-B", "a", "is not the name of a header"),
        ("X A", "a", "is not the name of a header"),
        ("", "a", "is not the name of a header"),
        ("X-É", "a", "is not the name of a header"),
        ("X-A:", "a", "is not the name of a header"),
        ("Host", "evil.test", "Host cannot be set"),
        ("content-length", "0", "content-length cannot be set"),
        ("Transfer-Encoding", "chunked", "Transfer-Encoding cannot be set"),
        ("Connection", "close", "Connection cannot be set"),
        ("Proxy-Authorization", "x", "Proxy-Authorization cannot be set"),
        ("user-agent", "a", "is given twice"),
    ],
)
async def test_headers_that_cannot_be_sent(name: str, value: str, told: str) -> None:
    async with serving() as server:
        with pytest.raises(Fatal, match=told) as raised:
            await get(client("127.0.0.1"), server.url, headers={"User-Agent": "mine", name: value})
        assert server.connections == 0
        assert "evil" not in str(raised.value)


@pytest.mark.parametrize("method", ["CONNECT", "trace", "GET /", "GET\r\n", "", "G\0T", "Ä"])
async def test_methods_that_cannot_be_sent(method: str) -> None:
    with pytest.raises(Fatal, match="is not a method"):
        await get(client(), "http://good.test/", method=method)


async def test_a_request_arrives_as_it_was_meant() -> None:
    async with serving() as server:
        found = await get(
            client("127.0.0.1"),
            f"{server.url}/ä/%2F?keep=%20+a&x#part",
            method="post",
            headers={"X-Latin": " é ", "Content-Type": "text/plain"},
            query={"a": ["1", "ü &"], "no": None, "yes": True, "n": 1.5},
            content=b"\0\xff",
        )
        assert found.url == f"{server.url}/%C3%A4/%2F?keep=%20+a&x&a=1&a=%C3%BC+%26&yes=true&n=1.5"
        [seen] = server.requests
        assert (seen.method, seen.body) == ("POST", b"\0\xff")
        assert seen.target == found.url.removeprefix(server.url)
        assert seen.headers["x-latin"] == "é"
        assert seen.headers["host"] == f"127.0.0.1:{server.port}"
        assert seen.headers["user-agent"].startswith("headrace/")
        assert seen.headers["accept-encoding"] == "gzip"


async def test_connections_are_used_again() -> None:
    async with serving() as server:
        outbound = client("127.0.0.1")
        for _ in range(5):
            await get(outbound, server.url)
        await asyncio.gather(*(get(outbound, server.url) for _ in range(3)))
        assert server.connections <= 3
        await outbound.aclose()
        await asyncio.wait_for(server.gone.wait(), ENDS_SECONDS)
        assert (await get(outbound, server.url)).status == 200  # a closed client opens itself again


# ---- redirects


def by_path(answers: dict[str, bytes]) -> Callable[[Seen, asyncio.StreamWriter], Any]:
    async def choose(seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(answers[seen.target.partition("?")[0]])

    return choose


@pytest.mark.parametrize(
    ("status", "method", "then"),
    [
        (301, "PATCH", "PATCH"),
        (301, "POST", "GET"),
        (302, "POST", "GET"),
        (302, "PUT", "PUT"),
        (303, "PUT", "GET"),
        (303, "HEAD", "HEAD"),
        (307, "POST", "POST"),
        (308, "DELETE", "DELETE"),
    ],
)
async def test_redirects_change_the_method_as_browsers_do(status: int, method: str, then: str) -> None:
    async with serving(by_path({"/a": redirect("/b", status), "/b": answer()})) as server:
        headers = {"Content-Type": "text/x", "Authorization": "secret"}
        found = await get(client("127.0.0.1"), f"{server.url}/a", method=method, content=b"body", headers=headers)
        assert found.url == f"{server.url}/b"
        [_, seen] = server.requests
        assert (seen.method, seen.target) == (then, "/b")
        assert seen.body == (b"body" if then == method else b"")
        assert ("content-type" in seen.headers) == bool(seen.body)
        assert seen.headers["authorization"] == "secret"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_another_origin_sees_no_credentials(status: int) -> None:
    async with serving() as other, serving(redirect(f"http://other.test:{other.port}/x", status)) as server:
        headers = {
            **dict.fromkeys(["Authorization", "Cookie", "X-Api-Key", "X-Anything", "Referer"], "secret"),
            **dict.fromkeys(["Accept", "Content-Type", "User-Agent", "Idempotency-Key"], "plain"),
        }
        await get(client("one.test", "other.test"), f"http://one.test:{server.port}/", method="POST", headers=headers)
        assert set(headers) <= {name.title() for name in server.requests[0].headers}
        [seen] = other.requests
        content = {"content-type", "content-length"} if seen.method == "POST" else set()
        assert seen.headers.keys() == {"host", "accept", "accept-encoding", "user-agent", "idempotency-key"} | content


async def test_another_port_is_another_origin() -> None:
    async with serving() as other, serving(redirect(f"http://127.0.0.1:{other.port}/")) as server:
        await get(client("127.0.0.1"), server.url, headers={"Authorization": "s"})
        assert "authorization" not in other.requests[0].headers


@pytest.mark.parametrize("location", ["http://127.0.0.1:PORT/", "/", "", "?a", "//127.0.0.1:PORT"])
async def test_a_redirect_loop_ends(location: str) -> None:
    async def loop(seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(redirect(location.replace("127.0.0.1:PORT", seen.headers["host"])))

    async with serving(loop) as server:
        with pytest.raises(Fatal, match=r"127\.0\.0\.1 redirected more than 3 times"):
            await get(client("127.0.0.1"), server.url)
        assert len(server.requests) == 4


async def test_redirects_can_be_left_to_the_caller() -> None:
    async with serving(redirect("http://10.0.0.1/")) as server:
        found = await get(client("127.0.0.1"), server.url, redirects=0)
        assert (found.status, found.headers["location"]) == (302, "http://10.0.0.1/")
    async with serving(answer("no location", status=302)) as server:
        assert (await get(client("127.0.0.1"), server.url)).content == b"no location"


async def test_a_redirect_may_be_written_in_utf_8() -> None:
    async with serving(by_path({"/": redirect("/ü"), "/%C3%BC": answer("found")})) as server:
        assert (await get(client("127.0.0.1"), server.url)).content == b"found"


# ---- TLS


def server_context(authority: trustme.CA) -> ssl.SSLContext:
    """Of a server whose certificate is for secure.test."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("secure.test").configure_cert(context)
    return context


@pytest.fixture
def tls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ssl.SSLContext:
    """A server's certificate, from an authority that the client trusts."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "authority.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))
    monkeypatch.setattr(dialer, "ssl_context", dialer.ssl_context.__wrapped__)
    return server_context(authority)


async def test_tls_verifies_the_name_though_the_address_is_pinned(tls: ssl.SSLContext) -> None:
    async with serving(tls=tls) as server:
        outbound = client("127.0.0.1")
        assert (await get(outbound, f"https://secure.test:{server.port}/")).content == b"hello"
        for host in ("other.test", "127.0.0.1"):
            with pytest.raises(Fatal, match=f"certificate of {host} cannot be trusted"):
                await get(outbound, f"https://{host}:{server.port}/")
        assert len(server.requests) == 1


async def test_https_is_never_redirected_to_http(tls: ssl.SSLContext) -> None:
    async with serving() as plain, serving(redirect(f"http://secure.test:{plain.port}/"), tls=tls) as server:
        with pytest.raises(Fatal, match="from https to http"):
            await get(client("127.0.0.1"), f"https://secure.test:{server.port}/")
        assert plain.connections == 0


async def test_an_unknown_certificate_is_not_trusted() -> None:
    async with serving(tls=server_context(trustme.CA())) as server:
        with pytest.raises(Fatal, match=r"certificate of secure\.test cannot be trusted"):
            await get(client("127.0.0.1"), f"https://secure.test:{server.port}/")


@pytest.mark.parametrize("cancelled", [True, False], ids=["cancelled", "timed out"])
async def test_a_handshake_that_hangs_leaves_no_connection(cancelled: bool) -> None:
    gone = asyncio.Event()
    came = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.set()
        while await reader.read(1000):
            pass
        gone.set()
        writer.close()

    listening = await asyncio.start_server(silent, "127.0.0.1", 0)
    async with listening:
        url = f"https://127.0.0.1:{listening.sockets[0].getsockname()[1]}/"
        call = asyncio.ensure_future(get(client("127.0.0.1"), url, timeout_seconds=ENDS_SECONDS if cancelled else 0.1))
        await came.wait()
        if cancelled:
            call.cancel()
        with pytest.raises(asyncio.CancelledError if cancelled else Retry):
            await call
        await asyncio.wait_for(gone.wait(), ENDS_SECONDS)


# ---- hostile answers

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
GZIP = OK + b"Content-Encoding: gzip\r\n\r\n"
BOMB = gzip.compress(bytes(50_000_000))
EMPTY_BLOCKS = zlib.compressobj(wbits=31)
EMPTY_BLOCKS_START = EMPTY_BLOCKS.compress(b"x") + EMPTY_BLOCKS.flush(zlib.Z_FULL_FLUSH)


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(endless(OK, b"X-A: b\r\n", pause_seconds=0.02), id="slow headers"),
        pytest.param(endless(b"", b"H", pause_seconds=0.02), id="slow status line"),
        pytest.param(endless(OK + b"Content-Length: 10000\r\n\r\n", b"a", pause_seconds=0.02), id="slow body"),
        pytest.param(endless(CHUNKED, b"1\r\na\r\n", pause_seconds=0.02), id="slow chunks"),
        pytest.param(endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n", pause_seconds=0.02), id="slow 1xx"),
        pytest.param(endless(b"", b"HTTP/1.1 103 Early Hints\r\n\r\n" * 1000), id="1xx flood"),
        pytest.param(endless(b"", b""), id="silence"),
        pytest.param(endless(CHUNKED, b"1;" + b"x" * 8000 + b"\r\n" + b"a\r\n", pause_seconds=0.1), id="extensions"),
    ],
)
async def test_what_never_ends_is_given_up_in_time(script: Any) -> None:
    async with serving(script) as server:
        with pytest.raises(Retry, match=r"127\.0\.0\.1 did not answer within 0\.3 seconds"):
            await get(client("127.0.0.1"), server.url, timeout_seconds=0.3)
        await asyncio.wait_for(server.gone.wait(), ENDS_SECONDS)


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(endless(OK + b"\r\n", b"a" * 10_000), id="endless"),
        pytest.param(endless(CHUNKED, b"2710\r\n" + b"a" * 10_000 + b"\r\n"), id="endless chunks"),
        pytest.param(saying(answer(b"a" * 100_001)), id="one too many"),
        pytest.param(ending(OK + b"Content-Length: 99999999999999999\r\n\r\n" + b"a" * 200_000), id="huge length"),
        pytest.param(ending(GZIP + BOMB), id="gzip bomb"),
        pytest.param(ending(GZIP.replace(b"gzip", b"deflate") + zlib.compress(bytes(50_000_000))), id="deflate bomb"),
        pytest.param(endless(GZIP, gzip.compress(b"")), id="endless empty members"),
        pytest.param(endless(GZIP, gzip.compress(bytes(10_000))), id="endless members"),
        pytest.param(endless(GZIP + EMPTY_BLOCKS_START, b"\0\0\0\xff\xff" * 1000), id="endless empty blocks"),
    ],
)
async def test_a_body_beyond_its_limit_is_refused(script: Any) -> None:
    async with serving(script) as server:
        with pytest.raises(Fatal, match=r"answer of 127\.0\.0\.1 is larger than the 100,000 bytes"):
            await get(client("127.0.0.1"), server.url)
        await asyncio.wait_for(server.gone.wait(), ENDS_SECONDS)


@pytest.mark.parametrize(
    "encoding", ["br", "zstd", "compress", "gzip, gzip", "gzip, br", "gzip;q=1", "x" * 1000, "\xff"]
)
async def test_other_encodings_are_refused(encoding: str) -> None:
    async with serving(answer("x", headers={"Content-Encoding": encoding})) as server:
        with pytest.raises(Fatal, match="only gzip and deflate can be read"):
            await get(client("127.0.0.1"), server.url)


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"SSH-2.0-OpenSSH_9.6\r\n", id="another protocol"),
        pytest.param(b"\x15\x03\x01\x00\x02\x02\x46" * 10, id="TLS"),
        pytest.param(b"HTTP/1.1\r\n\r\n", id="no status"),
        pytest.param(b"HTTP/1.1 999999 x\r\n\r\n", id="long status"),
        pytest.param(b"HTTP/1.1 -1 x\r\n\r\n", id="negative status"),
        pytest.param(b"<html>hello</html>", id="HTTP/0.9"),
        pytest.param(OK + b"no colon\r\n\r\n", id="bad header"),
        pytest.param(OK + b"A: b\0c\r\n\r\n", id="NUL in a header"),
        pytest.param(OK + b"Content-Length: 10\r\n\r\nabc", id="too short"),
        pytest.param(OK + b"Content-Length: -1\r\n\r\nabc", id="negative length"),
        pytest.param(OK + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nabc", id="two lengths"),
        pytest.param(OK + b"Content-Length: 1e3\r\n\r\nabc", id="odd length"),
        pytest.param(CHUNKED + b"xyz\r\nabc\r\n", id="bad chunk size"),
        pytest.param(CHUNKED + b"-1\r\nabc\r\n", id="negative chunk"),
        pytest.param(CHUNKED + b"5\r\nabc", id="short chunk"),
        pytest.param(CHUNKED + b"1\r\nabc\r\n0\r\n\r\n", id="long chunk"),
        pytest.param(CHUNKED + b"ffffffffffffffffffffffffff\r\nabc", id="endless chunk size"),
        pytest.param(CHUNKED + b"3\r\nabc\r\n", id="no last chunk"),
        pytest.param(OK + b"Transfer-Encoding: gzip\r\n\r\nabc", id="other transfer encoding"),
        pytest.param(OK + b"Transfer-Encoding: chunked, chunked\r\n\r\nabc", id="chunked twice"),
        pytest.param(OK + b"X: " + b"a" * 500_000 + b"\r\n\r\n", id="huge header"),
        pytest.param(OK + b"a:b\r\n" * 200_000 + b"\r\n", id="flood of headers"),
        pytest.param(b"HTTP/1.1 200 " + b"a" * 500_000, id="huge status line"),
        pytest.param(
            b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", id="switch nobody asked for"
        ),
        pytest.param(GZIP + b"not gzip at all", id="not gzip"),
        pytest.param(GZIP + BOMB[:100], id="gzip cut off"),
        pytest.param(GZIP + gzip.compress(b"good") + b"trailing", id="gzip and more"),
    ],
)
async def test_a_broken_answer_is_told_and_tried_again(said: bytes) -> None:
    async with serving(ending(said)) as server:
        with pytest.raises(Retry, match=r"127\.0\.0\.1") as raised:
            await get(client("127.0.0.1"), server.url)
        assert len(str(raised.value)) < 400


async def test_many_headers_are_refused() -> None:
    async with serving(OK + b"a:b\r\n" * 300 + b"Content-Length: 0\r\n\r\n") as server:
        with pytest.raises(Fatal, match="answered with 301 headers"):
            await get(client("127.0.0.1"), server.url)


@pytest.mark.parametrize("said", [b"", OK + b"Content-Length: 10\r\n\r\nabc"], ids=["at once", "in the body"])
async def test_a_reset_connection_is_tried_again(said: bytes) -> None:
    async def reset(seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        await writer.drain()
        writer.transport.abort()

    async with serving(reset) as server:
        with pytest.raises(Retry, match=r"127\.0\.0\.1"):
            await get(client("127.0.0.1"), server.url)


async def test_a_refused_connection_is_tried_again() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with pytest.raises(Retry, match=r"the connection to 127\.0\.0\.1 failed: .*(Connect call failed|refused)"):
            await get(client("127.0.0.1"), f"http://127.0.0.1:{unused.getsockname()[1]}/?secret=1")


async def test_a_cancelled_call_closes_its_connection() -> None:
    started = asyncio.Event()

    async def slowly(seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(OK + b"Content-Length: 5\r\n\r\na")
        started.set()
        await asyncio.Event().wait()

    async with serving(slowly) as server:
        call = asyncio.ensure_future(get(client("127.0.0.1"), server.url))
        await started.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await asyncio.wait_for(server.gone.wait(), ENDS_SECONDS)


async def test_one_hostile_server_does_not_hold_up_another_call() -> None:
    flood = endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000)
    async with serving(flood) as hostile, serving() as good:
        outbound = client("127.0.0.1")
        flooded = asyncio.ensure_future(get(outbound, hostile.url, timeout_seconds=ENDS_SECONDS))
        await asyncio.wait_for(hostile.came.wait(), ENDS_SECONDS)
        for _ in range(5):
            assert (await get(outbound, good.url)).content == b"hello"
        flooded.cancel()
        with pytest.raises(asyncio.CancelledError):
            await flooded


# ---- reading answers


async def test_repeated_headers_are_joined() -> None:
    async with serving(answer("x", headers={"X-A": "1", "x-a": "2", "X-L": "é"})) as server:
        found = await get(client("127.0.0.1"), server.url)
        assert found.headers["x-a"] == "1, 2"
        assert found.headers["x-l"] == "é"


@given(st.lists(st.binary(max_size=200), min_size=1, max_size=4), st.integers(1, 50), st.sampled_from(["gzip", "zlib"]))
def test_decoding_does_not_depend_on_where_the_data_is_cut(parts: list[bytes], step: int, form: str) -> None:
    data = b"".join(map(gzip.compress, parts)) if form == "gzip" else zlib.compress(b"".join(parts))
    decoder = _Decoder()
    decoded = b"".join(decoder.decode(data[at : at + step], 10_000) for at in range(0, len(data), step))
    assert decoded == b"".join(parts)
    assert decoder.is_complete


@given(st.binary(max_size=5000), st.integers(1, 6000))
def test_never_more_is_decoded_than_asked_for(content: bytes, limit: int) -> None:
    assert _Decoder().decode(gzip.compress(content), limit) == content[:limit]


NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("7", 7),
        (" 7 ", 7),
        ("1.5", 1.5),
        ("999999999999", 86_400),
        (format_datetime(NOW + timedelta(seconds=90), usegmt=True), 90),
        ("Sunday, 01-Mar-26 12:01:30 GMT", 90),
        ("Sun Mar  1 12:01:30 2026", 90),
        ("Sun, 01 Mar 2026 12:01:30 -0000", 90),
        (format_datetime(NOW - timedelta(days=1), usegmt=True), 0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 86_400),
        *((garbage, None) for garbage in ("", "soon", "-7", "+7", "٧", "1e3", "inf", "nan", "0x7", "7, 8", "1" * 400)),
        *((garbage, None) for garbage in ("Sun, 99 Mar 2026 12:01:30 GMT", "\0", "7;")),
    ],
)
def test_retry_after(text: str, seconds: float | None) -> None:
    assert retry_after_seconds({"retry-after": text}, NOW) == seconds


@given(st.text() | st.from_regex(r"[A-Z][a-z]{2}, \d+ [A-Z][a-z]{2} \d+ [\d:]+ ([A-Z]+|[+-]\d+)"))
def test_retry_after_is_bounded_whatever_it_says(text: str) -> None:
    found = retry_after_seconds({"retry-after": text}, NOW)
    assert found is None or 0 <= found <= 86_400


@pytest.mark.parametrize("status", [408, 425, 429, 500, 503, 599])
def test_a_status_that_may_pass_is_tried_again(status: int) -> None:
    found = Answer(status, {"retry-after": "12"}, b"over\nloaded", "https://a.test:1/x?secret=1")
    with pytest.raises(Retry, match=rf"^a\.test:1 answered {status}.*: over loaded$") as raised:
        refuse_status(found, lambda status: status < 300)
    assert raised.value.after == 12


@pytest.mark.parametrize("status", [100, 200, 302, 304, 400, 401, 404, 451, 600, 999])
def test_any_other_unexpected_status_is_final(status: int) -> None:
    found = Answer(status, {}, b"\x1b[31m" + b"\xff\0" * 10_000, "https://a.test/x")
    with pytest.raises(Fatal, match=rf"^a\.test answered {status}") as raised:
        refuse_status(found, lambda status: status == 201)
    assert str(raised.value).isprintable()
    assert len(str(raised.value)) < 300
