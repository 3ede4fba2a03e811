"""The web page beside a run, with viewers that look at it all the time: it must go on answering whatever happens to the run."""

from __future__ import annotations

import http.client
import re
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

from benchmarks.chaos import promises
from benchmarks.chaos.scene import LOOK, Scene
from benchmarks.ui_viewers import SHOWN
from ludus.apps.ui.server.address import STEER, Tokens
from ludus.apps.ui.server.known_runs import id_of

_SECRET = b"of this campaign, thirty-two characters or more"
_START = 90.0  # seconds in which the page must say its address
_VIEWERS = 3
_APART = 0.3  # seconds between two looks of a viewer
_RIGHT = {200, 304, 404, 409, 410}
"""What a page may answer: also that a run is not there, or is damaged."""


class Page:
    """`ludus ui` on all runs of a scene, and its viewers."""

    def __init__(self, scene: Scene) -> None:
        """Start it. Raises RuntimeError if it does not start."""
        self.command = scene.start(
            "ui", "--no-open", "--port", "0", "--root", ".", environment={"LUDUS_UI_SECRET": _SECRET.decode()}
        )
        end = time.monotonic() + _START
        while (said := re.search(r"http://[^:]+:(\d+)", self.command.output())) is None:
            if self.command.code is not None or time.monotonic() > end:
                raise RuntimeError(f"the page did not start: {self.command.errors()[-500:]}")
            time.sleep(LOOK)
        self.port, self.run = int(said[1]), scene.work / "run"
        self.answers, self.wrong = 0, list[str]()
        self._over = threading.Event()
        self._viewers = [threading.Thread(target=self._look, daemon=True) for _ in range(_VIEWERS)]
        for viewer in self._viewers:
            viewer.start()

    def _look(self) -> None:
        while not self._over.wait(_APART):
            for panel in ("", *SHOWN):
                path = f"/api/runs/{id_of(self.run)}/{panel}" if panel else "/api/runs"
                with suppress(OSError, http.client.HTTPException):
                    if (status := self.ask(path)) not in _RIGHT:
                        self.wrong.append(f"{path} was answered with {status}")

    def ask(self, path: str) -> int:
        """Return the status with which a request is answered."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request("GET", path, headers={"Cookie": f"ludus-{self.port}={Tokens(_SECRET).of(STEER)}"})
            answer = connection.getresponse()
            answer.read()
        finally:
            connection.close()
        self.answers += 1
        return answer.status

    def close(self) -> Iterator[str]:
        """End it, and yield what was wrong with it."""
        alive = self.command.code is None
        if alive:
            try:
                if (status := self.ask("/api/runs")) != 200:
                    yield f"the page answers with {status}"
            except (OSError, http.client.HTTPException) as error:
                yield f"the page does not answer: {error}"
        else:
            yield f"the page ended with {self.command.code}: {self.command.errors()[-300:]!r}"
        self._over.set()
        for viewer in self._viewers:
            viewer.join(30)
        if alive:
            self.command.process.terminate()
            end = time.monotonic() + 60
            while self.command.code is None and time.monotonic() < end:
                time.sleep(LOOK)
        yield from dict.fromkeys(self.wrong)
        code = -9 if self.command.code is None else self.command.code
        yield from promises.causes(self.command.errors(), code, (0, 143, -15) if alive else (code,), line="")
