"""The made-up runs of the store's tests serve the tests of what shows runs too; one browser for those that look at pages."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from page_tools import Opened

sys.path.insert(0, str(Path(__file__).parents[1] / "storage"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium, without a window. No longer than a file: while Playwright is there, nothing else in the thread may run an event loop."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        pytest.skip("no Chromium on this machine (Debian: apt-get install chromium)")
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs Playwright (pip install playwright)")
    with sync_api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture
def look(browser: Any) -> Iterator[Callable[..., Opened]]:
    """look(address, width=1280, dark=False) opens a page, waits until it is ready, and returns it."""
    contexts = []

    def open_page(address: str, *, width: int = 1280, dark: bool = False) -> Opened:
        contexts.append(
            browser.new_context(
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
