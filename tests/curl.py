"""As much of curl as docs/api.md uses, for machines that have none: `python -m tests.curl -i URL`."""

from __future__ import annotations

import argparse
import contextlib
import http.client
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("url")
    parser.add_argument("-i", action="store_true", required=True)
    parser.add_argument("-N", action="store_true")
    parser.add_argument("-X", dest="method")
    parser.add_argument("-H", dest="headers", action="append", default=[])
    parser.add_argument("-d", dest="data")
    parser.add_argument("--data-binary", dest="file")
    parser.add_argument("--max-time", type=float)
    asked = parser.parse_args()
    url = urlsplit(asked.url)
    assert url.hostname
    body = Path(asked.file.removeprefix("@")).read_bytes() if asked.file else asked.data and asked.data.encode()
    method = asked.method or ("GET" if body is None else "POST")
    headers = dict(header.split(": ", 1) for header in asked.headers)
    connection = http.client.HTTPConnection(url.hostname, url.port, timeout=asked.max_time)
    connection.request(method, url.path + (f"?{url.query}" if url.query else ""), body, headers)
    answer = connection.getresponse()
    print(f"HTTP/1.1 {answer.status} {answer.reason}", *(f"{k}: {v}" for k, v in answer.getheaders()), "", sep="\n")
    give_up = time.monotonic() + (asked.max_time or 3600)
    with contextlib.suppress(TimeoutError):
        while time.monotonic() < give_up and (line := answer.readline()):
            sys.stdout.write(line.decode())
            sys.stdout.flush()


if __name__ == "__main__":
    main()
