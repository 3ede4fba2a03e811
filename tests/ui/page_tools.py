"""The page in a real browser: a server of its own process, and what a reader of the page would see."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

SECRET = "of these tests, at least thirty-two characters"
_LINK = re.compile(rb"http://\S+")


@dataclass
class Opened:
    """A page, and what its console said."""

    page: Any
    said: list[str] = field(default_factory=list)

    def text(self, selector: str) -> str:
        return str(self.page.inner_text(selector))


class Server:
    """`ludus ui` of a folder of runs, in a process."""

    def __init__(self, root: Path, *, port: int | None = None, options: tuple[str, ...] = ()) -> None:
        """port: default: one that is free."""
        self.root, self._options, self.port = root, options, port
        self.start()

    def start(self) -> None:
        """Again, at the same address, after `kill`."""
        command = "from ludus.cli.main import script; script()"
        port = ("--port", str(self.port or 0))  # any that is free at first: others may want the usual one in between
        self._process = subprocess.Popen(
            [sys.executable, "-c", command, "ui", "--no-open", "--root", str(self.root), *port, *self._options],
            stdout=subprocess.PIPE,
            env={**os.environ, "LUDUS_UI_SECRET": SECRET},
            cwd=self.root,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        self._process.stdout.close()
        found = _LINK.search(line)
        assert found is not None
        self.link = found[0].decode()
        self.port = int(self.link.split(":")[2].split("/")[0])

    def kill(self) -> None:
        """As the kernel does."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """As Ctrl-C does; it must end by itself."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            assert self._process.wait(20) == 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def refusals(page: Any) -> list[str]:
    """Return what the server said with each answer of 400 or above."""
    return [f"{each.status} {each.url}: {each.text()}" for each in page.responses if each.status >= 400]


@contextmanager
def opened(browser: Any, server: Server, to: str = "#/", **options: Any) -> Iterator[Any]:
    """A page at an address of the page, with `messages` of its console. options: of the browser's context."""
    with browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options}) as context:
        page = context.new_page()
        page.messages, page.responses = [], []
        page.on("response", lambda response: page.responses.append(response))
        page.on("console", lambda message: page.messages.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: page.messages.append(f"error: {error}"))
        page.goto(f"{server.link}&to={to.replace('#', '%23')}")
        yield page


def wait_until(page: Any, predicate: str, *, arg: Any = None, seconds: float = 30.0) -> None:
    """Wait until an expression, or a function of `arg`, is true in the page. Playwright's own `wait_for_function` evaluates text inside the
    page after its first look, which the page's policy for scripts forbids."""
    end = time.monotonic() + seconds
    while not page.evaluate(predicate, arg):
        assert time.monotonic() < end, f"not so after {seconds:g} s: {predicate}"
        page.wait_for_timeout(50)


def run_ids(page: Any) -> dict[str, str]:
    """Name -> id of the runs that the server shows."""
    return {run["name"]: run["id"] for run in page.evaluate("fetch('api/runs').then(r => r.json())")["runs"]}


def remove_run(folder: Path) -> None:
    """Remove a run that a server reads. SQLite creates files next to a database that it reads, even while they are deleted."""
    aside = folder.parent.with_name(f"removed-{folder.name}")
    folder.rename(aside)
    shutil.rmtree(aside)
