"""Viewers without a browser: each has a stream of events, and asks for the panels that a page would show whenever they have changed."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from ludus.apps.ui.figures.panels import PANELS

SHOWN = tuple(name for name in PANELS if name != "policy")
"""The panels of a run's tabs; those of single policies are apart."""
APART = 0.5
"""Seconds between two times that a page asks, at least."""


@dataclass(slots=True)
class Viewer:
    """told: of each "changed" event, (when it came, its version)."""

    host: str
    port: int
    cookie: str
    run: str
    panels: Sequence[str] = SHOWN
    told: list[tuple[float, int]] = field(default_factory=list)
    answers: int = 0
    _tags: dict[str, str] = field(default_factory=dict)

    async def look(self, stop: asyncio.Event) -> None:
        """Until `stop`."""
        reader, writer = await asyncio.open_connection(self.host, self.port)
        writer.write(self._question(f"/api/live?runs={self.run}"))
        wanted = set(self.panels)
        asking = asyncio.ensure_future(self._ask(wanted, stop))
        over = asyncio.ensure_future(stop.wait())
        event = ""
        while not stop.is_set():
            line = asyncio.ensure_future(reader.readline())
            await asyncio.wait((line, over), return_when=asyncio.FIRST_COMPLETED)
            if not line.done():
                line.cancel()
                break
            if not (text := line.result().decode().strip()) and reader.at_eof():
                raise RuntimeError("the server closed a stream")
            if text.startswith("event: "):
                event = text.removeprefix("event: ")
            elif text.startswith("data: ") and event == "changed":
                data = json.loads(text.removeprefix("data: "))
                self.told.append((time.perf_counter(), data["version"]))
                wanted.update({*data["panels"]} & {*self.panels})
        writer.close()
        await asking

    async def _ask(self, wanted: set[str], stop: asyncio.Event) -> None:
        while not stop.is_set():
            if wanted:
                reader, writer = await asyncio.open_connection(self.host, self.port)
                while wanted:
                    panel = wanted.pop()
                    writer.write(self._question(f"/api/runs/{self.run}/{panel}", self._tags.get(panel, "")))
                    await self._answer(reader, panel)
                    self.answers += 1
                writer.close()
            await asyncio.sleep(APART)

    async def _answer(self, reader: asyncio.StreamReader, panel: str) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
        if " 200 " not in head[0] and " 304 " not in head[0]:
            raise RuntimeError(f"{panel} was answered with {head[0]}")
        headers = dict(line.split(": ", 1) for line in head[1:] if ": " in line)
        self._tags[panel] = headers.get("etag", "")
        if (size := int(headers.get("content-length", "0"))) and " 304 " not in head[0]:
            await reader.readexactly(size)

    def _question(self, path: str, tag: str = "") -> bytes:
        known = f"If-None-Match: {tag}\r\n" if tag else ""
        who = f"Host: {self.host}:{self.port}\r\nCookie: {self.cookie}\r\nAccept-Encoding: gzip\r\n"
        return f"GET {path} HTTP/1.1\r\n{who}{known}\r\n".encode()
