"""Answers that many browsers share: each is computed once for every state of its run, in a few threads; the newest are kept as bytes, up to
a bound."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from fastapi import Request, Response
from starlette.types import Receive, Scope, Send

from ludus.apps.ui.server.address import is_loopback
from ludus.core.machine import trim_memory

KEPT = 24 << 20
"""Bytes of answers that are kept, packed ones included."""
THREADS = 2
"""Threads that compute; what belongs to one run is computed in one of them, one after the other."""
_EACH = 1 << 10  # bytes that an answer costs beside its content, at most
_PART = 1 << 16  # bytes that are handed to a connection at a time
_SMALL, _LARGE = 1 << 10, 1 << 20
"""Bytes: what is smaller is not worth packing, what is larger not for this machine's own browser, nor worth keeping packed."""


@dataclass(slots=True)
class Body:
    """JSON to be sent. tag: of its content."""

    content: bytes
    tag: str = ""
    _packed: bytes = field(default=b"", repr=False)  # less than half of the content, mostly

    def __post_init__(self) -> None:
        self.tag = f'"{hashlib.blake2b(self.content, digest_size=12).hexdigest()}"'

    def packed(self) -> bytes:
        """Return the content by gzip, at its quickest where it is large."""
        if self._packed:
            return self._packed
        packed = gzip.compress(self.content, compresslevel=1 if len(self.content) > _LARGE else 5, mtime=0)
        if len(self.content) <= _LARGE:
            self._packed = packed
        return packed

    @property
    def size(self) -> int:
        """Return the bytes that it takes, at most: a packed copy may come."""
        return _EACH + len(self.content) * (2 if _SMALL <= len(self.content) <= _LARGE else 1)


class _Parts(Response):
    """An answer that is sent a part at a time, each once the connection has room: ten browsers that ask for 4 MB at once cost no copies."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope, receive
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for start in range(0, len(self.body), _PART):
            part = self.body[start : start + _PART]
            await send({"type": "http.response.body", "body": part, "more_body": start + _PART < len(self.body)})


async def respond(request: Request, body: Body, *, media_type: str = "application/json") -> Response:
    """Return 304 where the browser has it already; packed where that is worth the time, as hardly ever for a browser on this machine."""
    near = request.client is not None and is_loopback(request.client.host)
    headers = {"etag": body.tag, "cache-control": "private, no-cache", "vary": "accept-encoding, cookie"}
    tags = {tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")}
    if body.tag in tags:
        return Response(status_code=304, headers=headers)
    worth = len(body.content) >= _SMALL and (not near or len(body.content) <= _LARGE)
    if worth and "gzip" in request.headers.get("accept-encoding", ""):
        headers["content-encoding"] = "gzip"
        packed = await asyncio.to_thread(body.packed)
        return Response(packed, media_type=media_type, headers=headers)
    kind = Response if len(body.content) <= _PART else _Parts
    return kind(body.content, media_type=media_type, headers=headers)


def _body(compute: Callable[[], bytes]) -> Body:
    body = Body(compute())
    trim_memory()  # of the tables of a large league, what was freed in pieces
    return body


class AnswerCache:
    """Computed once while anybody waits for it, whoever asks; the ones that were not asked for for longest are forgotten."""

    def __init__(self, *, most: int = KEPT) -> None:
        self._max_bytes, self._size = most, 0
        self._bodies: OrderedDict[Hashable, tuple[Hashable, Body]] = OrderedDict()  # key -> (state, body)
        self._coming: dict[Hashable, asyncio.Future[Body]] = {}
        self._threads = [ThreadPoolExecutor(1, f"panels-{k}") for k in range(THREADS)]

    async def get(self, key: Hashable, group: str, compute: Callable[[], bytes], *, state: Hashable = None) -> Body:
        """Return what compute() gives for this key, from another thread. group: those of one are computed one after the other. state: of
        what it is computed from; of each key the last one is kept. Raises what it raises; that is not kept."""
        stored, body = self._bodies.get(key, (None, None))
        if body is not None and stored == state:
            self._bodies.move_to_end(key)
            return body
        now = (key, state)
        if now not in self._coming:
            self._coming[now] = asyncio.ensure_future(self._compute(key, group, compute, state))
        return await asyncio.shield(self._coming[now])  # one browser that goes away takes it from nobody

    async def _compute(self, key: Hashable, group: str, compute: Callable[[], bytes], state: Hashable) -> Body:
        try:
            chosen = self._threads[int(group[:8] or "0", 16) % len(self._threads)]
            body = await asyncio.get_running_loop().run_in_executor(chosen, _body, compute)
        finally:
            del self._coming[key, state]
        self._drop(key)
        self._bodies[key] = state, body
        self._size += body.size
        while self._size > self._max_bytes:
            self._drop(next(iter(self._bodies)))
        return body

    def _drop(self, key: Hashable) -> None:
        if (entry := self._bodies.pop(key, None)) is not None:
            self._size -= entry[1].size

    def forget(self, unwanted: Callable[[Hashable], bool]) -> None:
        """Drop those whose key is unwanted."""
        for key in [key for key in self._bodies if unwanted(key)]:
            self._drop(key)

    @property
    def size(self) -> int:
        """Return bytes that are kept."""
        return self._size

    def close(self) -> None:
        """Wait for nobody."""
        for thread in self._threads:
            thread.shutdown(wait=False, cancel_futures=True)
