"""Starts the server: a socket, an address with a token, uvicorn."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import uvicorn

from ludus.core.errors import ConfigError
from ludus.view.server.access import Access, Rights
from ludus.view.server.app import make_app
from ludus.view.server.known_runs import KnownRuns
from ludus.view.server.state import Runs, State
from ludus.view.server.watcher import Watcher

PORT = 8300
_NEXT = 50  # ports that are tried after it


def make_state(access: Access, runs: KnownRuns, *, people: Path | None = None) -> State:
    """What the routes share."""
    return State(access, Runs(runs), Watcher(runs), people)


def listen(host: str, port: int | None) -> socket.socket:
    """A socket; with port None at 8300 or the next that is free. Raises ConfigError."""
    wanted = [port] if port is not None else range(PORT, PORT + _NEXT)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for number in wanted:
        one = socket.socket(family)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind((host, number))
            one.listen(128)
        except OSError as error:
            one.close()
            why = error.strerror
            continue
        return one
    which = f"port {port}" if port is not None else f"any port from {PORT} to {PORT + _NEXT - 1}"
    raise ConfigError(
        f"nothing can listen at {which} of {host!r}: {why}. Give another --port or --host; --port 0 takes any."
    )


@dataclass(frozen=True, slots=True)
class Served:
    """A server that is about to run. address: without a token, as a browser reaches it."""

    server: uvicorn.Server
    socket: socket.socket
    address: str
    state: State

    def link(self, rights: Rights, to: str = "") -> str:
        """The address that lets its user do this. to: a place on the page, such as "#/people"."""
        more = f"&to={quote(to, safe='')}" if to else ""
        return f"{self.address}/enter?token={self.state.access.tokens.of(rights)}{more}"

    def run(self) -> None:
        """Until Ctrl-C."""
        self.server.run(sockets=[self.socket])


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, state: State) -> None:
        super().__init__(config)
        self._state = state

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._state.watcher.streams.close()  # or it would wait for the browsers
        await super().shutdown(sockets)


def serve(
    runs: KnownRuns, *, access: Access, host: str = "127.0.0.1", port: int | None = None, tls: Sequence[Path] = ()
) -> Served:
    """A server at this host. tls: certificate and key. Raises ConfigError."""
    listening = listen(host, port)
    access.port = listening.getsockname()[1]
    state = make_state(access, runs)
    more: dict[str, Any] = {"ssl_certfile": str(tls[0]), "ssl_keyfile": str(tls[1])} if tls else {}
    config = uvicorn.Config(
        make_app(state),
        log_level="warning",
        access_log=False,  # addresses hold tokens
        server_header=False,
        date_header=False,
        timeout_graceful_shutdown=2,
        limit_concurrency=1000,
        lifespan="on",
        ws="none",
        **more,
    )
    shown = f"[{host}]" if ":" in host else host
    address = f"{'https' if tls else 'http'}://{shown}:{access.port}"
    return Served(_Server(config, state), listening, address, state)
