"""The made-up runs of the store's tests serve the tests of what shows runs too; a browser for those that look at pages."""

from __future__ import annotations

import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "storage"))

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@dataclass
class Opened:
    """A page, and what its console said."""

    page: Any
    said: list[str] = field(default_factory=list)

    def text(self, selector: str) -> str:
        return str(self.page.inner_text(selector))


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine (Debian: apt-get install chromium)")
    playwright = pytest.importorskip("playwright.sync_api", reason="needs Playwright (pip install playwright)")
    with playwright.sync_playwright() as started:
        launched = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture
def look(chromium: Any) -> Iterator[Callable[..., Opened]]:
    """look(address, width=1280, dark=False) opens a page, waits until it is ready, and returns it."""
    contexts = []

    def open_page(address: str, *, width: int = 1280, dark: bool = False) -> Opened:
        contexts.append(
            chromium.new_context(
                viewport={"width": width, "height": 900},
                color_scheme="dark" if dark else "light",
                reduced_motion="reduce",
            )
        )
        opened = Opened(contexts[-1].new_page())
        opened.page.on("console", lambda message: opened.said.append(message.text))
        opened.page.on("pageerror", lambda error: opened.said.append(str(error)))
        opened.page.goto(address)
        opened.page.wait_for_selector("html[data-ready]", state="attached", timeout=20_000)
        return opened

    yield open_page
    for context in contexts:
        context.close()


@pytest.fixture
def serve_runs() -> Iterator[Callable[..., Any]]:
    """serve_runs(root, port=0) starts a server of the runs below a folder, in a thread, and returns it; it is ended with the test."""
    from ludus.view.server.access import Access, Hosts, Tokens
    from ludus.view.server.known_runs import KnownRuns
    from ludus.view.server.serving import serve

    running: list[tuple[Any, threading.Thread]] = []

    def start(root: Path, port: int = 0) -> Any:
        access = Access(hosts=Hosts.of("127.0.0.1"), tokens=Tokens(b"the same after a restart, for a test"))
        served = serve(KnownRuns(root=root), access=access, port=port)
        thread = threading.Thread(target=served.run)
        thread.start()
        running.append((served, thread))
        return served

    def end(served: Any) -> None:
        thread = next(thread for one, thread in running if one is served)
        served.server.should_exit = True
        thread.join()

    start.end = end  # type: ignore[attr-defined]
    yield start
    for served, _ in running:
        end(served)
