"""Server-sent events. A stream keeps one newest value for each key until its browser takes it, so that a browser that does not read holds
nobody up and costs no memory; one that is gone is dropped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from fastapi import HTTPException, Response
from starlette.types import Receive, Scope, Send

from ludus.apps.ui.server.access import MOST_STREAMS
from ludus.core.jsonable import to_json

HEARTBEAT = 15.0
"""Seconds between two signs of life."""
PATIENCE = 30.0
"""Seconds for which a browser may take nothing of what was sent."""

Merge = Callable[[Any, Any], Any]


class StreamCount:
    """Number of open streams, and its limit."""

    def __init__(self, most: int = MOST_STREAMS) -> None:
        self.most, self.open = most, 0
        self._streams: set[Stream] = set()

    @contextmanager
    def one(self, stream: Stream) -> Iterator[None]:
        """Count a stream while it is open."""
        self.open += 1
        self._streams.add(stream)
        try:
            yield
        finally:
            self.open -= 1
            self._streams.discard(stream)

    def check(self) -> None:
        """Raise HTTPException if there are enough."""
        if self.open >= self.most:
            raise HTTPException(429, f"{self.most} pages are open already. Close one, then load this one again.")

    def close(self) -> None:
        """End all of them."""
        for stream in [*self._streams]:
            stream.close()


class Stream(Response):
    """An answer of events, for one browser. Made and used in the event loop's thread; `put_soon` may be called in any."""

    def __init__(self, count: StreamCount, *, closed: Callable[[], object] = lambda: None) -> None:
        """closed: called when the browser has gone. Raises HTTPException if there are too many."""
        count.check()
        super().__init__(media_type="text/event-stream")
        self._count, self._closed = count, closed
        self._waiting: dict[tuple[str, str], Any] = {}
        self._wake = asyncio.Event()
        self._over = False
        self._loop = asyncio.get_running_loop()

    def put(self, event: str, data: Any, *, key: str = "", merge: Merge | None = None) -> None:
        """To be sent soon, in place of what waits with the same event and key. data: as `encode` takes it. merge(waiting, data): of both
        one."""
        waiting = self._waiting.pop((event, key), None)
        self._waiting[event, key] = data if merge is None or waiting is None else merge(waiting, data)
        self._wake.set()

    def put_soon(self, event: str, data: Any, *, key: str = "") -> None:
        """`put`, from another thread."""
        with suppress(RuntimeError):  # the server has ended
            self._loop.call_soon_threadsafe(lambda: self.put(event, data, key=key))

    def close(self) -> None:
        """End it, once what waits has been sent."""
        self._over = True
        self._wake.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As an ASGI response."""
        del scope
        with self._count.one(self):
            gone = asyncio.ensure_future(_gone(receive))
            try:
                await self._send_all(send, gone)
            except (TimeoutError, OSError):  # it reads nothing any more
                pass
            finally:
                gone.cancel()
                self._closed()

    async def _send_all(self, send: Send, gone: asyncio.Future[None]) -> None:
        headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"x-accel-buffering", b"no")]  # no length
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await self._send(send, b"retry: 2000\n\n")
        while not gone.done():
            if not self._waiting and not self._over:
                wake = asyncio.ensure_future(self._wake.wait())
                await asyncio.wait((wake, gone), timeout=HEARTBEAT, return_when=asyncio.FIRST_COMPLETED)
                wake.cancel()
            self._wake.clear()
            waiting, self._waiting = self._waiting, {}
            await self._send(send, b"".join(map(_event, waiting, waiting.values())) or b": here\n\n")
            if self._over and not self._waiting:
                await send({"type": "http.response.body", "body": b"event: bye\ndata: {}\n\n", "more_body": False})
                return

    async def _send(self, send: Send, body: bytes) -> None:
        await asyncio.wait_for(send({"type": "http.response.body", "body": body, "more_body": True}), PATIENCE)


def encode(data: Any) -> bytes:
    """As JSON in one line; what is bytes is that already, for the streams of many browsers."""
    return data if isinstance(data, bytes) else to_json(data)


def _event(key: tuple[str, str], data: Any) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (key[0].encode(), encode(data))


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
