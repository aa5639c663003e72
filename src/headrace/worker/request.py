"""A request on its way out: checked, with our own headers, and rewritten when the answer is a redirect.

What a definition says about a request is hostile input. Here it becomes something that can only be one HTTP request to
one host; where that host may be is checked later, at its address (`dialer`). Errors name hosts and headers, never
paths, queries or values: these may be secrets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from headrace.errors import Fatal
from headrace.worker.addresses import HOST_NAME
from headrace.worker.answers import Answer

if TYPE_CHECKING:  # the library takes a while to import, and most commands send nothing
    import httpcore2
    import httpx2

TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}", re.ASCII)
HEADER_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
NOT_METHODS = {"CONNECT", "TRACE"}
# They say how this one connection is used, and that is for the client to say.
NOT_HEADERS = {
    *("connection", "content-length", "expect", "host", "keep-alive", "proxy-authenticate", "proxy-authorization"),
    *("proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"),
}
# What another origin may see. Any other header may be a credential.
ACROSS_ORIGINS = {
    *("accept", "accept-encoding", "accept-language", "content-type", "idempotency-key", "traceparent", "user-agent"),
}


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    url: httpx2.URL
    headers: Mapping[str, str]
    content: bytes | None

    @classmethod
    def checked(
        cls, method: str, url: str, headers: Mapping[str, str], query: Mapping[str, Any], content: bytes | None
    ) -> Request:
        """Raises Fatal for what no server could make sense of, or two servers different sense."""
        return cls(_method(method), _with_query(_url(url), query), _headers(headers), content)

    @property
    def host(self) -> str:
        return self.url.raw_host.decode("ascii")

    def redirected(self, answer: Answer) -> Request:
        """As browsers do it, except that another origin sees few headers and https never becomes http."""
        before, url = self.url, _url(_location(answer), self.url)
        follow = replace(self, url=url)
        if before.scheme == "https" and url.scheme == "http":
            raise Fatal(f"{self.host} redirected from https to http ({follow.host}): that is not followed")
        if (url.scheme, url.raw_host, url.port) != (before.scheme, before.raw_host, before.port):
            follow = replace(follow, headers={k: v for k, v in self.headers.items() if k in ACROSS_ORIGINS})
        if (answer.status == 303 and self.method != "HEAD") or (answer.status < 303 and self.method == "POST"):
            kept = {k: v for k, v in follow.headers.items() if not k.startswith("content-")}
            follow = replace(follow, method="GET", headers=kept, content=None)
        return follow

    def on_the_wire(self) -> httpcore2.Request:
        import httpcore2

        url, content = self.url, self.content
        headers = [(b"host", url.netloc)]
        headers += [(name.encode("ascii"), value.encode("latin-1")) for name, value in self.headers.items()]
        if content is not None or self.method in ("POST", "PUT", "PATCH"):
            headers.append((b"content-length", b"%d" % len(content or b"")))
        target = httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)
        return httpcore2.Request(self.method, target, headers=headers, content=content)


def _location(answer: Answer) -> str:
    location = answer.headers["location"]
    try:
        return location.encode("latin-1").decode("utf-8")
    except UnicodeError:
        return location


def _method(method: str) -> str:
    method = method.upper()
    if not TOKEN.fullmatch(method) or method in NOT_METHODS:
        raise Fatal(f"{method[:20]!r} is not a method that can be sent")
    return method


def _url(text: str, base: httpx2.URL | None = None) -> httpx2.URL:
    """An absolute URL that can be sent. Which host it names is of no interest yet, only that it names one."""
    import httpx2

    try:
        url = httpx2.URL(text) if base is None else base.join(text)
    except (httpx2.InvalidURL, ValueError, TypeError) as error:
        reason = str(error).partition(":")[0]  # after the colon it quotes the URL
        raise Fatal(f"the URL cannot be read: {reason}") from None
    if url.scheme not in ("http", "https"):
        raise Fatal("the URL must begin with http:// or https://")
    host = url.raw_host.decode("ascii")
    if not (":" in host and "%" not in host) and not HOST_NAME.fullmatch(host.removesuffix(".")):
        raise Fatal("the URL names no host" if not host else "the URL has a host that is neither a name nor an address")
    if url.port is not None and not 1 <= url.port <= 65535:
        raise Fatal("the port of the URL must be between 1 and 65535")
    if url.userinfo:
        raise Fatal("the URL has credentials in it: give them as `auth`")
    return url.copy_with(fragment=None)


def _with_query(url: httpx2.URL, query: Mapping[str, Any]) -> httpx2.URL:
    """The URL's own query stays as it is; values that are None are left out."""
    import httpx2

    given = {name: value for name, value in query.items() if value is not None}
    if not given:
        return url
    try:
        added = str(httpx2.QueryParams(given)).encode("ascii")
    except UnicodeError:
        raise Fatal("the query has text that is not valid Unicode") from None
    return url.copy_with(query=b"&".join(filter(None, (url.query, added))))


def _headers(given: Mapping[str, str]) -> Mapping[str, str]:
    """In lower case, with ours where nothing else was said."""
    headers: dict[str, str] = {}
    for name, value in given.items():
        if not TOKEN.fullmatch(name):
            raise Fatal(f"{name[:50]!r} is not the name of a header")
        if name.lower() in NOT_HEADERS:
            raise Fatal(f"the header {name} cannot be set: it belongs to the connection")
        if name.lower() in headers:
            raise Fatal(f"the header {name} is given twice")
        if not HEADER_VALUE.fullmatch(value):
            raise Fatal(
                f"the header {name} has a character that headers cannot carry: a line break, a control character, or "
                "one beyond Latin-1"
            )
        headers[name.lower()] = value.strip(" \t")
    return {"accept": "*/*", "accept-encoding": "gzip", "user-agent": _user_agent(), **headers}


@cache
def _user_agent() -> str:
    from headrace import __version__

    return f"headrace/{__version__}"
