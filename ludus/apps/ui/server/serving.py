"""Starts the server: the application behind a socket, by uvicorn."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from ludus.apps.ui.server.access import Access
from ludus.apps.ui.server.address import Address, Rights, is_any
from ludus.apps.ui.server.app import make_app
from ludus.apps.ui.server.known_runs import KnownRuns
from ludus.apps.ui.server.state import State
from ludus.apps.ui.server.watcher import Watcher
from ludus.core.machine import return_freed_memory, thread_limits, trim_memory


def make_state(access: Access, runs: KnownRuns, *, people: Path | None = None) -> State:
    """Return what the routes share."""
    return State(access, runs, Watcher(runs), people)


@dataclass(frozen=True, slots=True)
class Served:
    """A server that is about to run."""

    server: uvicorn.Server
    socket: socket.socket
    address: Address
    state: State

    def link(self, rights: Rights, to: str = "") -> str:
        """As `Address.link`."""
        return self.address.link(self.state.access.tokens, rights, to)

    def run(self) -> None:
        """Serve until Ctrl-C, with one thread for products of matrices, so that a run on the same machine keeps its cores."""
        return_freed_memory()
        gc.collect()
        trim_memory()  # of what modules left when they were loaded
        with suppress(KeyboardInterrupt), thread_limits(torch_threads=None):
            self.server.run(sockets=[self.socket])

    def end(self) -> None:
        """From another thread."""
        self.server.should_exit = True


HEAD_SECONDS = 10.0
"""In which a request's head has to come."""


class _Protocol(H11Protocol):
    """Closes a connection on which no request comes: a thousand of them would take all that may be open, before anybody is asked for a
    token."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._expect()

    @property
    def _awaiting_request(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _expect(self) -> None:
        if self._late is not None and not self._awaiting_request:
            self._late.cancel()
            self._late = None
        elif self._late is None and self._awaiting_request:
            self._late = self.loop.call_later(HEAD_SECONDS, self._end)

    def _end(self) -> None:
        self._late = None
        if self._awaiting_request:
            self.transport.close()


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, state: State) -> None:
        super().__init__(config)
        self._state = state

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._state.watcher.streams.close()  # or it would wait for the browsers
        await super().shutdown(sockets)


def serve(
    runs: KnownRuns,
    listening: socket.socket,
    *,
    access: Access,
    host: str,
    tls: Sequence[Path] = (),
    people: Path | None = None,
) -> Served:
    """Return a server at this socket. host: what it listens at. tls: certificate and key. people: as of `State`."""
    port = listening.getsockname()[1]
    access.port, access.secure = port, bool(tls)
    state = make_state(access, runs, people=people)
    more: dict[str, Any] = {"ssl_certfile": str(tls[0]), "ssl_keyfile": str(tls[1])} if tls else {}
    config = uvicorn.Config(
        make_app(state),
        log_config=None,  # its own would close handlers of other libraries, absl's with the file that it writes to
        log_level="warning",
        access_log=False,  # addresses hold tokens
        server_header=False,
        date_header=False,
        proxy_headers=False,  # which anybody can send
        timeout_graceful_shutdown=2,
        limit_concurrency=1000,
        lifespan="on",
        ws="none",
        http=_Protocol,
        **more,
    )
    display_host = socket.gethostname() if is_any(host) else host
    return Served(_Server(config, state), listening, Address(display_host, port, bool(tls)), state)
