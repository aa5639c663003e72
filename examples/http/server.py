"""A small HTTP service on this machine that misbehaves: too many requests, outages, connections that break.

    python examples/http/server.py 8765

Without a port it takes a free one. It prints its address, then every request. Headrace sends the same Idempotency-Key
with all attempts of a node, so the service knows which attempt it sees, and does the work of a node only once.
"""

import json
import sys
from collections import Counter
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

DEGREES = {"berlin": 21, "lagos": 31, "quito": 18}
MEMBER = "Bearer demo-7f3a9c2e"  # what secret.yaml must send; a real service would not show it to you

attempts: Counter[str] = Counter()  # by Idempotency-Key
bookings: Counter[str] = Counter()


class Service(BaseHTTPRequestHandler):
    def do_GET(self) -> None:  # the name is http.server's
        if self.path == "/member":
            return self.member()
        city = self.path.removeprefix("/weather/")
        if city not in DEGREES:
            return self.answer(404, {"error": "no such city"})
        return self.weather(city, attempt=self.count_attempt())

    def do_POST(self) -> None:
        city = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["city"]
        key, attempt = self.headers["Idempotency-Key"], self.count_attempt()
        if key not in bookings:
            bookings[key] += 1
        if attempt == 1:
            return self.hang_up()  # the booking is made, and the client does not know it
        return self.answer(201, {"city": city, "bookings": bookings[key], "asked": attempt})

    def weather(self, city: str, attempt: int) -> None:
        if city == "berlin" and attempt == 1:
            return self.answer(429, {"error": "too many requests"}, **{"Retry-After": "1"})
        if city == "lagos" and attempt <= 2:
            return self.answer(503, {"error": "down for a moment"})  # nothing about when: the node's policy decides
        if city == "quito" and attempt == 1:
            return self.hang_up()
        return self.answer(200, {"city": city, "degrees": DEGREES[city], "asked": attempt})

    def member(self) -> None:
        sent = self.headers.get("Authorization", "")
        if sent != MEMBER:
            return self.answer(401, {"error": "who are you?"})
        return self.answer(200, {"name": "Ada", "you_sent": sent})

    def count_attempt(self) -> int:
        key = self.headers["Idempotency-Key"]
        attempts[key] += 1
        return attempts[key]

    def answer(self, status: int, body: dict[str, Any], **headers: str) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(content)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def hang_up(self) -> None:
        self.log_message('"%s" no answer', self.requestline)
        self.close_connection = True


def main() -> None:
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    with ThreadingHTTPServer(("127.0.0.1", port), Service) as server:
        print(f"http://127.0.0.1:{server.server_port}", flush=True)
        with suppress(KeyboardInterrupt):
            server.serve_forever()


if __name__ == "__main__":
    main()
