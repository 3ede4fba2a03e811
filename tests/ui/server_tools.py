"""A server of made-up runs without a socket, and a browser that asks it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient

from ludus.apps.ui.server.access import Access
from ludus.apps.ui.server.address import STEER, Rights
from ludus.apps.ui.server.app import make_app
from ludus.apps.ui.server.known_runs import KnownRuns
from ludus.apps.ui.server.serving import make_state

HOST = "127.0.0.1:8300"


class Asker(TestClient):
    """What asks. access: what it is let in by."""

    def __init__(
        self, root: Path, access: Access | None = None, *, rights: Rights | None = STEER, runs: tuple[str, ...] = ()
    ) -> None:
        """rights: of the cookie that it has; None: it has none."""
        self.access = access or Access(port=8300)
        self.state = make_state(self.access, KnownRuns(runs, root=None if runs else root), people=root / "people.db")
        super().__init__(make_app(self.state), base_url=f"http://{HOST}", follow_redirects=False)
        if rights is not None:
            self.headers["cookie"] = f"{self.access.cookie}={self.access.tokens.of(rights)}"

    def order(self, path: str, body: Any, **headers: str) -> Any:
        """A POST as the page sends it."""
        return self.post(path, json=body, headers={"x-ludus": "1", **headers})

    def run_id(self, name: str) -> str:
        """Of the list."""
        return next(run.id for run in self.state.watcher.runs.all() if run.name == name)


@contextmanager
def asking(root: Path, access: Access | None = None, **options: Any) -> Iterator[Asker]:
    """With the server's threads, which end with it."""
    with Asker(root, access, **options) as asker:
        yield asker
