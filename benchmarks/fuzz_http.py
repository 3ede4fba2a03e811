"""Requests of the page: asked of the application in this process, and as raw bytes of a server's socket."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.fuzz_judge import Wrong
from benchmarks.fuzz_mutators import TEXTS, mutate_bytes, mutate_json, mutate_tree

HOST = "127.0.0.1:8300"
RUN, TABLE, SEAT = "@run@", "@table@", "@seat@"
_PANELS = (
    "overview",
    "payoffs",
    "ranking",
    "convergence",
    "events",
    "learning",
    "lineage",
    "policy",
    "responses",
    "embedding",
    "diversity",
)
_GETS = (
    "/", "/page/index.html", "/api/session", "/api/runs", f"/api/compare?runs={RUN}&metric=nash_conv&apart=true", f"/api/live?runs={RUN}",
    *(f"/api/runs/{RUN}/{panel}" for panel in _PANELS), f"/api/runs/{RUN}/events?limit=5&level=error", f"/api/runs/{RUN}/replays",
    f"/api/runs/{RUN}/payoffs?generation=1&row=0&rows=2&order=age", f"/api/runs/{RUN}/policy?population=0&policy=0-1",
    f"/api/runs/{RUN}/replays/954c5fe8973a29c6", f"/api/replays/954c5fe8973a29c6.gif?run={RUN}", f"/api/runs/{RUN}/tree?seats=@best&node=",
    f"/api/runs/{RUN}/seats", "/api/people", f"/api/tables/{TABLE}?seat={SEAT}", f"/api/tables/{TABLE}/live?seat={SEAT}",
    "/api/openapi.json", "/enter?token=aa&to=#/run",
)  # fmt: skip
_POSTS: tuple[tuple[str, Any], ...] = (
    (f"/api/runs/{RUN}/order", {"do": "throttle", "speed": 0.5, "session": "a"}),
    (f"/api/runs/{RUN}/show", {"seats": ["@best"], "seed": 3}),
    (f"/api/runs/{RUN}/keep", {"replay": "954c5fe8973a29c6"}),
    (
        "/api/tables",
        {
            "run": RUN,
            "seats": [{"who": "person", "name": "Ada"}, {"who": "@best"}],
            "hints": True,
            "seed": 1,
            "rated": False,
        },
    ),
    (f"/api/tables/{TABLE}/move", {"seat": SEAT, "moves": [{"player": 0, "agent": 0, "action": 1}], "number": 1}),
    (f"/api/tables/{TABLE}/again", {"seat": SEAT}),
)


def seeds() -> Sequence[bytes]:
    """Return requests, as JSON: method, target, headers, body."""
    common = {"host": HOST, "cookie": "@cookie@", "accept-encoding": "gzip"}
    change = {**common, "x-ludus": "1", "content-type": "application/json"}
    out: list[dict[str, Any]] = [
        {"method": "GET", "target": target, "headers": common, "body": None} for target in _GETS
    ]
    out += [{"method": "POST", "target": target, "headers": change, "body": body} for target, body in _POSTS]
    out.append({"method": "DELETE", "target": f"/api/tables/{TABLE}?seat={SEAT}", "headers": change, "body": None})
    out.append(
        {
            "method": "GET",
            "target": "/api/live",
            "headers": {**common, "upgrade": "websocket", "connection": "upgrade"},
            "body": None,
        }
    )
    return [json.dumps(one).encode() for one in out]


def mutate(rng: Random, data: bytes) -> bytes:
    """Return a request with a changed target, header, method or body; a body that is no JSON is under "raw", in latin-1."""
    request = json.loads(data)
    for _ in range(rng.choice((1, 1, 2))):
        how = rng.randrange(8)
        if how == 0:
            request["method"] = rng.choice(("HEAD", "PUT", "OPTIONS", "DELETE", "POST", "GET", "BREW", ""))
        elif how == 1:
            name = rng.choice(list(request["headers"]) or ["host"])
            request["headers"][name] = rng.choice((*TEXTS[:40], "1" * 400, "*", "deflate", "bytes=0-", "null"))
        elif how == 2:
            request["headers"][
                rng.choice(
                    ("range", "origin", "if-none-match", "content-length", "transfer-encoding", "sec-fetch-site")
                )
            ] = rng.choice(("cross-site", "-1", "9" * 30, "chunked", 'W/"a"', "\xff", "http://evil"))
        elif how == 3 and request["headers"]:
            del request["headers"][rng.choice(list(request["headers"]))]
        elif how in (4, 5) or request["body"] is None:
            target = request["target"]
            k = rng.randrange(len(target) + 1)
            new = rng.choice(
                (
                    "%00",
                    "%2e%2e/",
                    "../",
                    "%ff",
                    "&a=1",
                    "?",
                    "=",
                    "-1",
                    "9" * 400,
                    "nan",
                    "💥",
                    "%0d%0aX: 1",
                    "a" * 5000,
                    "@best,",
                )
            )
            request["target"] = rng.choice(
                (target[:k] + new + target[k:], target[:k], target[:k] + new, re.sub(r"=[^&]*", f"={new}", target))
            )
        elif how == 6:
            request["raw"] = rng.choice((mutate_bytes, mutate_json))(rng, json.dumps(request["body"]).encode()).decode(
                "latin-1"
            )
        else:
            request["body"] = mutate_tree(rng, request["body"])
    return json.dumps(request).encode()


@dataclass(slots=True)
class Page:
    """The application over the runs of a box, in this process."""

    box: Path
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)
    app: Any = None
    state: Any = None
    words: dict[str, str] = field(default_factory=dict)

    def begin(self) -> None:
        """Make the application."""
        from ludus.apps.ui.server.access import Access, Bucket, Buckets
        from ludus.apps.ui.server.address import STEER
        from ludus.apps.ui.server.app import make_app
        from ludus.apps.ui.server.known_runs import KnownRuns
        from ludus.apps.ui.server.serving import make_state

        free = Buckets(1e9, 1e9)
        access = Access(port=8300, known=free, strangers=free, guesses=free, all_guesses=Bucket(1e9, 1e9))
        state = make_state(access, KnownRuns(root=self.box / "runs"), people=self.box / "runs" / "people.db")
        self.app, self.state = make_app(state), state
        self.words = {
            "@cookie@": f"{access.cookie}={access.tokens.of(STEER)}",
            RUN: state.runs.all()[0].id,
            TABLE: "none",
            SEAT: "none",
        }

    def ask(self, data: bytes) -> tuple[int, bytes]:
        """Return (status, body) of a request's answer."""
        if self.app is None:
            self.begin()
        if (TABLE in data.decode()) and self.words[TABLE] == "none":
            self._lay()
        return self.loop.run_until_complete(asyncio.wait_for(self._ask(json.loads(self.filled(data))), 60.0))

    def close(self) -> None:
        """End its threads and the loop."""
        if self.state is not None:
            self.loop.run_until_complete(self.state.close())
        self.loop.close()

    def filled(self, data: bytes) -> str:
        """Return a request with names in place of marks."""
        text = data.decode()
        for mark, word in self.words.items():
            text = text.replace(mark, word)
        return text

    def _lay(self) -> None:
        request = next(one for one in seeds() if b'"target": "/api/tables"' in one)
        status, body = self.loop.run_until_complete(self._ask(json.loads(self.filled(request))))
        if status == 200:
            table = json.loads(body)
            self.words |= {TABLE: table["table"], SEAT: table["seats"][0]["token"]}

    async def _ask(self, request: dict[str, Any]) -> tuple[int, bytes]:
        path, _, query = request["target"].partition("?")
        body = (
            request.get("raw", "").encode("latin-1")
            if "raw" in request
            else b""
            if request["body"] is None
            else _json(request["body"])
        )
        headers = [
            (name.encode("latin-1", "replace").lower(), str(value).encode("utf-8", "surrogatepass"))
            for name, value in request["headers"].items()
        ]
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": request["method"], "scheme": "http",
            "path": _decoded(path), "raw_path": path.encode("utf-8", "surrogatepass"),
            "query_string": query.encode("utf-8", "surrogatepass"),
            "root_path": "", "headers": headers, "client": ("127.0.0.1", 5000), "server": ("127.0.0.1", 8300),
        }  # fmt: skip
        sent = [{"type": "http.request", "body": body, "more_body": False}]
        status, out, streaming = 0, b"", asyncio.Event()

        async def receive() -> dict[str, Any]:
            if sent:
                return sent.pop()
            await streaming.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            nonlocal status, out
            status = message.get("status", status)
            out += message.get("body", b"")
            if message["type"] == "http.response.body" and len(out) > 20:
                streaming.set()

        await self.app(scope, receive, send)
        return status, out


def _json(body: Any) -> bytes:
    return json.dumps(body).encode()


def _decoded(path: str) -> str:
    from urllib.parse import unquote

    return unquote(path, errors="replace")


PAGES: dict[Path, Page] = {}


def close_pages() -> None:
    """End the applications of this process."""
    while PAGES:
        PAGES.popitem()[1].close()


def parse(box: Path) -> None:
    """Ask the application. Raise Wrong for an answer that no client should have."""
    data = (box / "request.json").read_bytes()
    if box not in PAGES:
        PAGES[box] = Page(box)
    page = PAGES[box]
    status, body = page.ask(data)
    if b"DELETE" in data or status == 404:
        page.words[TABLE] = "none"
    if status >= 500 or status == 0:
        raise Wrong(f"status {status}: {body[:200]!r}")
    if b"Traceback" in body or str(box).encode() in body:
        raise Wrong(f"the answer tells of the server: {body[:200]!r}")
    if status >= 400 and b'"HEAD"' not in data:
        with suppress(KeyError):
            message = json.loads(body)["error"]
            if len(str(message).splitlines()) != 1:
                raise Wrong(f"status {status}, a message of several lines: {message[:200]!r}")


def raw(page: Page, rng: Random, data: bytes, port: int) -> bytes:
    """Return a request as bytes for a socket, changed once more."""
    request = json.loads(page.filled(data).replace(HOST, f"127.0.0.1:{port}"))
    body = b"" if request["body"] is None else _json(request["body"])
    head = [
        f"{request['method']} {request['target']} HTTP/1.1",
        *(f"{name}: {value}" for name, value in request["headers"].items()),
    ]
    head += [f"content-length: {len(body)}"] if body else []
    text = "\r\n".join(head).encode("utf-8", "surrogatepass") + b"\r\n\r\n" + body
    return text if rng.random() < 0.3 else mutate_bytes(rng, text)


def send(port: int, data: bytes, *, seconds: float = 5.0) -> bytes:
    """Return the beginning of a server's answer to raw bytes; b"" if it closes the connection, or waits for more."""
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as link:
        link.settimeout(seconds)
        with suppress(OSError):
            link.sendall(data)
            link.shutdown(socket.SHUT_WR)
            return link.recv(65_536)
    return b""
