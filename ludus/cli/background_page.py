"""The page of a run that is being trained here: a process of its own, which the run never waits for, and which ends with it.

train --ui --(socket, secret)--> a process that serves it
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from ludus.apps.ui.server.address import LOOPBACK, STEER, Address, Tokens, listen
from ludus.cli.ui import opened, own_tokens
from ludus.core.errors import ConfigError
from ludus.core.packages import check_extra
from ludus.storage.base import NullObserver, Observer, Observers, RunInfo
from ludus.storage.run_dirs import RUNS

_CHILD = "from ludus.cli.background_page import child; child()"
_NICE = 10  # less urgent than the run by so much
_PATIENCE = 5.0  # seconds that it may take to end


class BackgroundPage(NullObserver):
    """The page of a run, started with it as one of its observers."""

    def __init__(self, observer: Observer) -> None:
        """observer: is told the address."""
        self._observer = observer
        self._process: subprocess.Popen[bytes] | None = None
        self.link = ""

    def run_started(self, info: RunInfo, *, generation: int = 0) -> None:
        """Start the server, and wait for nothing."""
        del generation
        try:
            self._start(info.run_dir)
        except (ConfigError, OSError) as error:
            self._observer.message(f"the page could not be opened, and the run goes on without it: {error}")

    def _start(self, run_dir: Path) -> None:
        tokens = own_tokens()
        with listen() as listening:  # the child has it from here on
            self.link = Address(LOOPBACK, listening.getsockname()[1]).link(tokens, STEER)
            self._process = subprocess.Popen(
                [sys.executable, "-c", _CHILD],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=(listening.fileno(),),
                start_new_session=True,  # Ctrl-C is for the run
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
            facts = {"fd": listening.fileno(), "secret": tokens.secret.hex(), "run_dir": str(run_dir.absolute())}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(facts).encode() + b"\n")
        self._process.stdin.flush()
        self._observer.message(f"the page of this run: {self.link}")

    @property
    def is_running(self) -> bool:
        """Return whether it is still served."""
        return self._process is not None and self._process.poll() is None

    def wait_until_closed(self) -> None:
        """Where somebody is there to end it, until Ctrl-C."""
        if not (self.is_running and sys.stdin.isatty() and sys.stderr.isatty()):
            return
        assert self._process is not None
        sys.stderr.write(f"\nThe page stays open until Ctrl-C: {self.link}\n")
        with suppress(KeyboardInterrupt):
            self._process.wait()

    def close(self) -> None:
        """End it."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()  # which tells it
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextmanager
def open_page(observer: Observer, *, wanted: bool) -> Iterator[tuple[Observer, BackgroundPage | None]]:
    """(who is to observe the run, its page if one is wanted). observer: of the run; it is told the address."""
    if not wanted:
        yield observer, None
        return
    check_extra("ui", "--ui")  # here, where somebody hears of it
    page = BackgroundPage(observer)
    try:
        yield Observers(observer, page), page
    finally:
        page.close()


# ---------------------------------------------------------------------------------------------- in the process that serves


def child() -> None:
    """Serve what standard input says, until that is closed: the run is over, however it ended."""
    os.nice(_NICE)
    sys.path.append("")  # as the command does
    facts = json.loads(sys.stdin.buffer.readline())
    ends: list[Callable[[], None]] = [lambda: os._exit(0)]  # until there is a server, nothing has to be ended with care
    threading.Thread(target=_until_closed, args=(sys.stdin.buffer, ends), daemon=True).start()
    from socket import socket

    from ludus.apps.ui.server.access import Access
    from ludus.apps.ui.server.known_runs import KnownRuns
    from ludus.apps.ui.server.serving import serve

    known = KnownRuns([facts["run_dir"]], root=RUNS)
    run = known.find(Path(facts["run_dir"]))
    access = Access(Tokens(bytes.fromhex(facts["secret"])))
    served = serve(known, socket(fileno=facts["fd"]), access=access, host=LOOPBACK)
    ends.append(served.end)
    with opened(served.link(STEER, "" if run is None else f"#/run/{run.id}")):
        served.run()


def _until_closed(stream: IO[bytes], ends: list[Callable[[], None]]) -> None:
    """ends: the last of them ends this process."""
    stream.read()
    ends[-1]()
