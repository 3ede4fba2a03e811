"""Every endpoint of the description, asked with what fits it and what does not: nothing breaks, nothing leaks."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from requests.exceptions import RequestException
from schemathesis.generation import GenerationMode

from ludus.apps.ui.server.access import LONGEST_BODY, Access, Buckets
from ludus.apps.ui.server.address import LOOPBACK, PLAY, STEER, WATCH, listen
from ludus.apps.ui.server.known_runs import KnownRuns
from ludus.apps.ui.server.serving import Served, serve
from ludus.cli.main import main

pytestmark = pytest.mark.slow

EXAMPLES = 6  # of each endpoint, way and right
WAITS = 30.0


@dataclass(frozen=True)
class Target:
    served: Served
    root: Path
    run: str
    described: dict[str, Any]

    @property
    def address(self) -> str:
        return str(self.served.address)

    def cookie(self, token: str) -> dict[str, str]:
        return {"Cookie": f"{self.served.state.access.cookie}={token}", "X-Ludus": "1"}

    @property
    def secrets(self) -> list[str]:
        """What no answer may hold."""
        tokens = self.served.state.access.tokens
        return [
            *(tokens.of(rights) for rights in (WATCH, PLAY, STEER)),
            str(self.root),
            "Traceback",
            "site-packages",
            '.py"',
        ]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    root = tmp_path_factory.mktemp("runs")
    assert main(["train", "kuhn", "--run-dir", str(root / "try1"), "generations=2"]) == 0
    free = Buckets(1e9, 1e9)
    access = Access(known=free, strangers=free)
    served = serve(KnownRuns(root=root), listen(port=0), access=access, host=LOOPBACK, people=root / "people.db")
    thread = threading.Thread(target=served.run)
    thread.start()
    cookie = {"Cookie": f"{access.cookie}={access.tokens.of(STEER)}"}
    described = requests.get(f"{served.address}/api/openapi.json", headers=cookie, timeout=WAITS).json()
    (run,) = served.state.watcher.runs.all()
    yield Target(served, root, run.id, described)
    served.end()
    thread.join(60)
    assert not thread.is_alive()


def check(target: Target, reply: requests.Response, *, stranger: bool = False) -> None:
    """It is an answer that was meant to be given."""
    kind = reply.headers.get("Content-Type", "")
    text = "" if kind.startswith("text/event-stream") else reply.text
    reply.close()
    said = f"{reply.request.method} {reply.url} {reply.request.body!r} -> {reply.status_code} {text[:300]}"
    assert reply.status_code < 500, said
    assert "default-src 'none'" in reply.headers["Content-Security-Policy"], said
    for secret in target.secrets:
        assert secret not in text, said
    if reply.status_code >= 400 and reply.request.method != "HEAD":
        assert [*json.loads(text)] == ["error"], said
        assert json.loads(text)["error"], said
    if stranger:
        assert reply.status_code in (400, 401, 403, 413), said


def operations(target: Target) -> list[Any]:
    schema = schemathesis.openapi.from_dict(target.described)
    return [found.ok() for found in schema.get_all_operations()]


@pytest.mark.parametrize(
    ("who", "mode"),
    [
        ("steer", GenerationMode.POSITIVE),
        ("steer", GenerationMode.NEGATIVE),
        ("watch", GenerationMode.POSITIVE),
        ("wrong", GenerationMode.POSITIVE),
        pytest.param("nobody", GenerationMode.NEGATIVE, marks=pytest.mark.long),
    ],
)
def test_no_question_breaks_it(target: Target, who: str, mode: GenerationMode) -> None:
    tokens = target.served.state.access.tokens
    headers = {
        "steer": target.cookie(tokens.of(STEER)),
        "watch": target.cookie(tokens.of(WATCH)),
        "wrong": target.cookie(64 * "a"),
        "nobody": {"X-Ludus": "1"},
    }[who]
    seen = dict[str, set[int]]()
    for operation in operations(target):
        try:
            seen[operation.path] = _ask(
                target, operation.as_strategy(mode), headers, stranger=who in ("wrong", "nobody")
            )
        except Unsatisfiable:  # there is nothing that would not fit
            continue
    assert {"/api/runs/{run}/order", "/api/tables", "/api/live"} <= seen.keys()
    answered = set[int]().union(*seen.values())
    if who == "steer":
        assert {200, 404} <= answered if mode == GenerationMode.POSITIVE else 422 in answered
    else:
        assert {"watch": 403, "wrong": 401, "nobody": 401}[who] in answered


def _ask(target: Target, cases: Any, headers: dict[str, str], *, stranger: bool) -> set[int]:
    """How it was answered."""
    answered = set[int]()

    @settings(
        max_examples=3 if stranger else EXAMPLES,
        deadline=None,
        database=None,
        suppress_health_check=[*HealthCheck],
    )
    @given(case=cases, known=st.booleans())
    def ask(case: Any, known: bool) -> None:
        if known and "run" in (case.path_parameters or {}):
            case.path_parameters["run"] = target.run
        if known and isinstance(case.body, dict) and "run" in case.body:
            case.body["run"] = target.run
        try:
            question = case.as_transport_kwargs(base_url=target.address, headers=headers)
            reply = requests.request(**question, stream=True, timeout=WAITS)
        except (RequestException, ValueError):  # what cannot be sent
            return
        answered.add(reply.status_code)
        check(target, reply, stranger=stranger)

    ask()
    return answered


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE", "BREW"])
def test_every_path_with_every_method(target: Target, method: str) -> None:
    headers = target.cookie(target.served.state.access.tokens.of(STEER))
    for path in [*target.described["paths"], "/", "/enter", "/login", "/page/app.js", "/api", "/api/", "//", "/%00"]:
        for run in (target.run, "none", "..%2f..", "%ff"):
            url = f"{target.address}{path.replace('{run}', run)}"
            check(target, requests.request(method, url, headers=headers, stream=True, timeout=WAITS, json={}))
            if "{run}" not in path:
                break


@pytest.mark.parametrize("size", [0, 1, LONGEST_BODY, LONGEST_BODY + 1, 10 * LONGEST_BODY])
def test_bodies_of_every_size(target: Target, size: int) -> None:
    headers = {**target.cookie(target.served.state.access.tokens.of(STEER)), "Content-Type": "application/json"}
    deep = (size // 2) * b"[" + (size - size // 2) * b"]"
    for path, methods in target.described["paths"].items():
        if "post" not in methods:
            continue
        url = f"{target.address}{path.replace('{run}', target.run)}"
        for body in (size * b"1", deep, b'"' + size * b"\xff" + b'"'):
            try:
                reply = requests.post(url, data=body, headers=headers, timeout=WAITS, stream=True)
            except requests.ConnectionError:  # refused while it was still being sent
                assert size > LONGEST_BODY
                continue
            check(target, reply)
            assert reply.status_code in ((413,) if len(body) > LONGEST_BODY else (400, 422)), (url, size)


@pytest.mark.parametrize(
    "raw",
    [
        b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",  # no host
        b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n",
        b"GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + 100_000 * b"a" + b"\r\n\r\n",
        b"GET /" + 100_000 * b"a" + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST /api/tables HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"GET /api/live HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
        bytes(range(256)) * 20,
    ],
)
def test_malformed_http_is_rejected(target: Target, raw: bytes) -> None:
    with socket.create_connection((LOOPBACK, target.served.address.port), WAITS) as line:
        line.sendall(raw)
        line.shutdown(socket.SHUT_WR)
        answer = b""
        try:
            while part := line.recv(65536):
                answer += part
        except ConnectionResetError:
            pass
    status = answer.split(b" ")[1:2]
    assert status in ([], [b"200"], [b"400"], [b"401"], [b"403"], [b"404"]), answer[:200]
    for secret in target.secrets:
        assert secret.encode() not in answer


def test_those_who_are_slow_hold_nobody_up(target: Target) -> None:
    lines = [socket.create_connection((LOOPBACK, target.served.address.port), WAITS) for _ in range(100)]
    for line in lines:
        line.sendall(b"GET /api/runs HTTP/1.1\r\nHost: localh")
    headers = target.cookie(target.served.state.access.tokens.of(WATCH))
    reply = requests.get(f"{target.address}/api/runs", headers=headers, timeout=WAITS)
    assert reply.status_code == 200
    for line in lines:
        line.close()


def test_streams_are_counted(target: Target) -> None:
    headers = target.cookie(target.served.state.access.tokens.of(WATCH))
    streams = target.served.state.watcher.streams
    open_, most = [], streams.most
    streams.most = streams.open + 20
    try:
        for _ in range(21):
            open_.append(requests.get(f"{target.address}/api/live", headers=headers, stream=True, timeout=WAITS))
        assert [reply.status_code for reply in open_] == [*20 * [200], 429]
        check(target, open_[-1])
    finally:
        streams.most = most
        for reply in open_:
            reply.close()
    for _ in range(300):
        if not streams.open:
            break
        time.sleep(0.1)
    assert not streams.open
