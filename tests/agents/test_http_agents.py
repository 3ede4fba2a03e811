"""Agents behind a service: the same messages, by POST to a server of these tests."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ludus.core.errors import ConfigError, PartDied, PolicyError
from ludus.policies.agents import count_faults
from ludus.policies.bots import parse_bot
from tests.agents.agent_games import EXAMPLES, begun, requests, stub


class Service(ThreadingHTTPServer):
    """Plays as `agent_stub` does, and keeps what it was sent."""

    daemon_threads = True

    def __init__(self, serves: str) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.serves, self.messages, self.tokens = serves, list[dict[str, Any]](), set[str | None]()
        self.seen: dict[Any, list[Any]] = {}
        self.fails = 0
        self.go = threading.Event()
        self.go.set()

    def action(self, row: dict[str, Any], slot: Any) -> int:
        import zlib

        self.seen[slot].append(round(sum(row["observation"]), 3))
        legal = row["legal"]
        return int(legal[zlib.crc32(str(self.seen[slot]).encode()) % len(legal)])

    def answer(self, message: dict[str, Any]) -> Any:
        client = message["client"]
        if message["type"] == "hello":
            return {"type": "ready", **({"serves": self.serves} if self.serves else {})}
        if message["type"] == "reset":
            self.seen[client, message["slot"]] = [message["seed"], message["player"]]
        if message["type"] != "act":
            return None
        if self.serves != "batch":
            return {"action": self.action(message, (client, message["slot"]))}
        for row in message["requests"]:
            if row["seed"] is not None:
                self.seen[client, row["slot"]] = [row["seed"], message["player"]]
        return {"actions": [self.action(row, (client, row["slot"])) for row in message["requests"]]}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Service

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.messages.append(message)
        self.server.tokens.add(self.headers["Authorization"])
        assert message["type"] != "act" or self.server.go.wait(60)
        if self.server.fails:
            self.server.fails -= 1
            self.send_response(503)
            body = b"busy"
        else:
            self.send_response(200)
            body = json.dumps(self.server.answer(message)).encode()
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(params=["many", "batch"])
def service(request: pytest.FixtureRequest) -> Iterator[Service]:
    with Service(request.param) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def address(service: Service, options: str = "") -> str:
    return f"http://127.0.0.1:{service.server_port}/act{options}"


def test_a_service_plays_as_a_program_does(service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_TOKEN", "secret")
    played = []
    for text in (stub("many", "well"), address(service, ",token_env=AGENT_TOKEN")):
        with begun(text, tmp_path) as agent:
            rows = [requests([5, 6, 7], value=0.1), requests([-1, -1, 9], value=0.2), requests([-1, -1, -1], value=0.3)]
            played.append([[int(action) for action in agent.act(row)] for row in rows])
    assert played[0] == played[1]
    assert service.tokens == {"Bearer secret"}
    assert len({message["client"] for message in service.messages}) == 1
    assert [message["type"] for message in (service.messages[0], service.messages[-1])] == ["hello", "close"]


def test_the_example_plays_as_that_of_a_command(tmp_path: Path) -> None:
    words = [sys.executable, str(EXAMPLES / "service.py"), "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            url, played = server.stdout.readline().strip(), []
            for text in (url, f"command:{EXAMPLES / 'agent.py'}"):
                with begun(text, tmp_path) as agent:
                    rows = [requests([5, 6, 7]), requests([-1, 9, -1]), requests([-1, -1, -1])]
                    played.append([[int(action) for action in agent.act(row)] for row in rows])
        finally:
            server.kill()
    assert played[0] == played[1]


def test_errors_of_a_service_are_deaths(service: Service, tmp_path: Path) -> None:
    with begun(address(service), tmp_path) as agent:
        service.fails = 1
        with pytest.raises(PartDied, match="status 503: busy"):
            agent.act(requests([5]))


def test_late_answers_of_a_service(service: Service, tmp_path: Path) -> None:
    with begun(address(service, ",timeout=60"), tmp_path / "agents") as agent:
        agent.act(requests([5]))
        service.go.clear()
        agent.timeout = 0.05
        agent.act(requests([-1]))
        service.go.set()
        agent.timeout = 60.0
        agent.act(requests([-1]))
        service.go.clear()
        agent.timeout = 0.05
        agent.act(requests([-1]))
        with pytest.raises(PartDied, match="two moves in a row"):
            agent.act(requests([-1]))
        service.go.set()
    (counts,) = count_faults(tmp_path).values()
    assert counts == {"late": 2}


def test_a_service_that_is_not_there(tmp_path: Path) -> None:
    with (
        pytest.raises(PolicyError, match="could not be reached, 2 times"),
        begun("http://127.0.0.1:9/act,retries=1,start=5", tmp_path),
    ):
        pass
    with pytest.raises(ConfigError, match="names no host"):
        parse_bot("http:///act").make()
    with pytest.raises(ConfigError, match="no such variable"):
        parse_bot("https://localhost/act,token_env=NO_SUCH_TOKEN").make()
